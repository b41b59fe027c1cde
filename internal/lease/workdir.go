package lease

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"celld/internal/id"
)

// WorkDir is a locked work directory: no other process uses it.
type WorkDir struct {
	Dir  string
	lock *os.File
}

// LockWorkDir locks dir, creating it if need be. If another process has it the
// error names its pid.
func LockWorkDir(dir string) (*WorkDir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("work directory: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("work directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("the work directory %s is in use by %s: stop that process, or give this one another --work-dir", dir, holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintln(os.Getpid()))); err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &WorkDir{dir, f}, nil
}

// holder names the process that wrote its pid into the lock.
func holder(f *os.File) string {
	b, _ := io.ReadAll(f)
	pid := strings.TrimSpace(string(b))
	if pid == "" { // it has the lock and has not come to writing yet
		return "a process that is just starting"
	}
	return "pid " + pid
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// Unlock lets the directory go.
func (w *WorkDir) Unlock() error { return w.lock.Close() }

// Node is the stable name of the node: the one given, else the one that was
// kept here, else a new one that is kept from now on.
func (w *WorkDir) Node(given string) (id.Node, error) {
	path := filepath.Join(w.Dir, "node")
	if given != "" {
		return id.Node(given), nil
	}
	b, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(b)); err == nil && name != "" {
		return id.Node(name), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	name := "node-" + strings.ToLower(rand.Text()[:10])
	return id.Node(name), os.WriteFile(path, []byte(name+"\n"), 0o600)
}

// run is what is remembered of the newest session here.
type run struct {
	Session id.Session `json:"session"`
	Boot    string     `json:"boot_id"`
	Lock    uint64     `json:"lock"` // the lock file, which a copy of the directory does not share
}

// Predecessor is the session that ran here before, in the same boot of this
// machine: holding the lock proves that it is gone. "" if there was none, or it
// may run elsewhere, as where the directory is a copy of one that is in use.
func (w *WorkDir) Predecessor() (id.Session, error) {
	b, err := os.ReadFile(filepath.Join(w.Dir, "session.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var r run
	if json.Unmarshal(b, &r) != nil || r.Boot == "" || r.Boot != bootID() {
		return "", nil
	}
	if lock, err := w.lockID(); err != nil || r.Lock != lock {
		return "", err
	}
	return r.Session, nil
}

// Remember notes the session that runs here now.
func (w *WorkDir) Remember(s id.Session) error {
	lock, err := w.lockID()
	if err != nil {
		return err
	}
	b, err := json.Marshal(run{s, bootID(), lock})
	if err != nil {
		return err
	}
	tmp := filepath.Join(w.Dir, "session.json.tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(w.Dir, "session.json"))
}

// lockID names the file that is locked. The device is left out: it may get
// another number each time that a container or a volume starts.
func (w *WorkDir) lockID() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.lock.Fd()), &st); err != nil {
		return 0, fmt.Errorf("work directory %s: %w", w.Dir, err)
	}
	return st.Ino, nil
}

// bootID names this boot of this machine; it changes with both.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
