package buckettest

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// createContainer makes a container; the adapter itself never does.
func createContainer(t testing.TB, env, name string) {
	t.Helper()
	_, connection, _ := strings.Cut(env, "=")
	client, err := container.NewClientFromConnectionString(connection, name, nil)
	if err == nil {
		_, err = client.Create(t.Context(), nil)
	}
	if err != nil {
		t.Fatalf("azurite: create the container: %v", err)
	}
}
