package watchdog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"celld/internal/lease/watchdog"
)

// role makes this binary play a process whose lease ends.
const role = "WATCHDOG_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "busy":
		busy()
	case "unread":
		unread()
	case "disarmed":
		arm(time.Millisecond)
		watchdog.Deadline(0)
		io.Copy(io.Discard, os.Stdin) // until the test has seen enough
		os.Exit(0)
	}
}

func arm(left time.Duration) {
	if err := watchdog.Start(time.Millisecond); err != nil {
		panic(err)
	}
	watchdog.Deadline(watchdog.Now() + left)
}

// busy leaves Go no thread to run anything else on.
func busy() {
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(1)
	arm(50 * time.Millisecond)
	for {
	}
}

// unread fills a standard error that nobody reads, and goes on writing.
func unread() {
	go func() {
		for line := bytes.Repeat([]byte("x"), 64<<10); ; {
			os.Stderr.Write(line)
		}
	}()
	fmt.Println("go")
	io.ReadFull(os.Stdin, make([]byte, 1)) // the test has seen the pipe fill
	arm(0)
	select {}
}

func child(t *testing.T, as string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+as)
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return cmd
}

func code(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

func TestABusyProcessIsEnded(t *testing.T) {
	cmd := child(t, "busy")
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Run(); code(err) != 3 || !strings.HasPrefix(out.String(), "SELF-FENCE: node_lease_watchdog_fence") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// A log collector that hangs does not keep a node alive past its lease.
func TestNobodyNeedsToReadItsLastWords(t *testing.T) {
	cmd := child(t, "unread")
	r, w, err := os.Pipe() // held open and never read
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stderr = w
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntilFull(t, w)
	w.Close()
	in.Write([]byte("!"))
	if err := cmd.Wait(); code(err) != 3 {
		t.Error(err)
	}
}

func TestADisarmedWatchdogEndsNothing(t *testing.T) {
	cmd := child(t, "disarmed")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, func() { in.Close() }) // more than two of its looks
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Go's signal handlers never run on the thread.
func TestItTakesNoSignals(t *testing.T) {
	if err := watchdog.Start(time.Hour); err != nil {
		t.Fatal(err)
	}
	for {
		tasks, _ := filepath.Glob("/proc/self/task/*/status")
		for _, path := range tasks {
			b, _ := os.ReadFile(path)
			status := string(b)
			if !strings.HasPrefix(status, "Name:\tlease-watchdog\n") {
				continue
			}
			_, after, _ := strings.Cut(status, "SigBlk:\t")
			mask, _, _ := strings.Cut(after, "\n")
			blocked, err := strconv.ParseUint(mask, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []syscall.Signal{syscall.SIGURG, syscall.SIGPROF, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGCHLD} {
				if blocked&(1<<(s-1)) == 0 {
					t.Errorf("%v may arrive there", s)
				}
			}
			return
		}
		runtime.Gosched() // it has not named itself yet
	}
}

func TestTheClockIsTheBootClock(t *testing.T) {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip(err)
	}
	var up float64
	fmt.Sscan(string(b), &up)
	// In a container /proc/uptime may be the container's own.
	if now := watchdog.Now(); now < time.Duration(up*float64(time.Second))-10*time.Millisecond {
		t.Errorf("%v after %v up", now, up)
	}
	if first, second := watchdog.Now(), watchdog.Now(); second < first {
		t.Error("it went back")
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		watchdog.Now()
	}
}
