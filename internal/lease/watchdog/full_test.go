package watchdog_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waitUntilFull returns when a writer on the pipe would block.
func waitUntilFull(t *testing.T, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for full := false; !full; time.Sleep(time.Millisecond) {
		err := raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(p, 0)
			full = n == 0 && err == nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
