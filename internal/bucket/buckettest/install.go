package buckettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// toolsDir is where servers are installed once and found again; CELLD_TEST_TOOLS
// replaces it.
func toolsDir() (string, error) {
	if dir := os.Getenv("CELLD_TEST_TOOLS"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "celld-test-tools"), err
}

// tool is a server program, or the reason why there is none.
func tool(t testing.TB, name, version string, install func(dir string) *exec.Cmd, program string) string {
	t.Helper()
	dir, err := toolsDir()
	if err == nil {
		dir = filepath.Join(dir, name+"-"+version)
		err = installOnce(dir, install)
	}
	if err != nil {
		unavailable(t, name, err)
	}
	return filepath.Join(dir, program)
}

// unavailable skips a test that lacks its server; where CI=true it fails.
func unavailable(t testing.TB, name string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s cannot be installed or started: %v", name, err)
	}
	t.Skipf("%s cannot be installed or started: %v", name, firstLine(err))
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return line
}

// installOnce runs an installation unless it has been done, once at a time for
// all test binaries.
func installOnce(dir string, install func(dir string) *exec.Cmd) error {
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if out, err := install(dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.WriteFile(done, nil, 0o666)
}

// goInstall builds a Go program outside our own module.
func goInstall(pkg string) func(dir string) *exec.Cmd {
	return func(dir string) *exec.Cmd {
		cmd := exec.Command("go", "install", pkg)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
		return cmd
	}
}

// npmInstall installs an npm package into a directory of its own.
func npmInstall(pkg string) func(dir string) *exec.Cmd {
	return func(dir string) *exec.Cmd {
		return exec.Command("npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-save", pkg)
	}
}
