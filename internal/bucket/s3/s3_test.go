package s3_test

import (
	"os"
	"testing"

	"celld/internal/bucket/buckettest"
)

func TestMain(m *testing.M) { os.Exit(buckettest.Main(m)) }

func TestContract(t *testing.T) {
	url, env := buckettest.VersityGW(t)
	buckettest.Run(t, buckettest.Open(t, url+"/with/prefix", env), buckettest.FilesAreLeaves)
}

func TestRaceOfProcesses(t *testing.T) {
	url, env := buckettest.VersityGW(t)
	buckettest.RaceProcesses(t, url, env)
}
