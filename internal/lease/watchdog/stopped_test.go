package watchdog_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"celld/internal/lease/watchdog"
)

func init() {
	if os.Getenv(role) == "works" {
		works()
	}
}

// works lets something out and renews, as long as its lease holds.
func works() {
	const lease = 300 * time.Millisecond
	if err := watchdog.Start(50 * time.Millisecond); err != nil {
		panic(err)
	}
	end := watchdog.Now() + lease
	for {
		now := watchdog.Now() // stopped after this it renews to an end that has passed
		if now >= end {
			break
		}
		end = now + lease
		watchdog.Deadline(end)
		os.Stdout.WriteString(".")
		time.Sleep(lease / 30)
	}
	select {}
}

// A process that was stopped is ended when it is continued after its lease, and
// lets nothing out.
func TestAProcessThatWasStopped(t *testing.T) {
	cmd := child(t, "works")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := bufio.NewReader(r)
	if b, err := out.ReadByte(); b != '.' {
		t.Fatal(b, err, said.String())
	}
	cmd.Process.Signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal(status, err)
	}
	unread, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	before := out.Buffered() + unread
	for end := watchdog.Now() + 500*time.Millisecond; watchdog.Now() < end; { // its lease passes
		time.Sleep(10 * time.Millisecond)
	}
	cmd.Process.Signal(syscall.SIGCONT)
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); code(err) != 3 || !strings.HasPrefix(said.String(), "SELF-FENCE:") {
		t.Errorf("%v, said %q", err, said.String())
	}
	if late := len(rest) - before; late > 1 { // one write may have been decided on when it was stopped
		t.Errorf("%d writes after it was continued", late)
	}
}
