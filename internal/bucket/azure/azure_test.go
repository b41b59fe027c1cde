package azure_test

import (
	"os"
	"testing"

	"celld/internal/bucket/buckettest"
)

func TestMain(m *testing.M) { os.Exit(buckettest.Main(m)) }

func TestContract(t *testing.T) {
	url, env := buckettest.Azurite(t)
	buckettest.Run(t, buckettest.Open(t, url+"/with/prefix", env))
}

func TestRaceOfProcesses(t *testing.T) {
	url, env := buckettest.Azurite(t)
	buckettest.RaceProcesses(t, url, env)
}
