package v8

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestHeaderVersion(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}}@{{.Version}}", "github.com/tommie/v8go").Output()
	if err != nil {
		t.Skip(err)
	}
	want := strings.TrimSpace(string(out))
	src, err := os.ReadFile("cgo.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(string(src), "\n") {
		if strings.Contains(l, "/pkg/mod/") && !strings.Contains(l, want+"/") {
			t.Errorf("cgo.go has another version than go.mod (%s): %s", want, l)
		}
	}
}
