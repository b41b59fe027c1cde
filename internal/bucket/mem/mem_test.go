package mem_test

import (
	"testing"

	"celld/internal/bucket/buckettest"
	"celld/internal/bucket/mem"
)

func TestContract(t *testing.T) { buckettest.Run(t, mem.New()) }
