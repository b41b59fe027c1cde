package lease

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Event names why a session fenced itself.
type Event string

const (
	Expired  Event = "node_lease_watchdog_fence"
	Missing  Event = "node_lease_record_missing_fence"
	Mismatch Event = "node_lease_record_mismatch_fence"
)

// ExitCode of a process that fenced itself. A supervisor starts it again.
const ExitCode = 3

const (
	// sayBudget is how long the line that says why may take: nothing is stopped
	// before it, and a log that nobody reads would hold it for ever.
	sayBudget = 500 * time.Millisecond
	// fenceBudget is how long stopping the node may take before the process ends anyway.
	fenceBudget = 2 * time.Second
)

var nextStep = map[Event]string{
	Expired:  "another node may take its cells; look why the bucket did not take a renewal in time",
	Missing:  "somebody deleted the record; nothing but the node itself and recovery after its death may touch nodes/",
	Mismatch: "somebody else wrote the record: another node that held this one for dead, or a hand",
}

// Fence ends this session: nothing leaves it from here on. It returns only
// where Exit does.
func (l *Lease) Fence(event Event, cause error) {
	if !l.fencing.CompareAndSwap(false, true) {
		<-l.ended // no sync.Once: who waits for its mutex stops the clock of a synctest bubble
		return
	}
	defer close(l.ended)
	l.dead.Store(true)
	if l.cfg.Deadline != nil {
		l.cfg.Deadline(l.cfg.Clock.Boot()) // should what follows hang, the watchdog ends it
	}
	within(sayBudget, func() { l.say(event, cause) })
	close(l.fenced)
	if l.cfg.Fenced != nil {
		within(fenceBudget, func() { l.cfg.Fenced(event) })
	}
	exit := l.cfg.Exit
	if exit == nil {
		exit = os.Exit
	}
	exit(ExitCode)
}

// say leaves the one line that tells an operator why the process ended.
func (l *Lease) say(event Event, cause error) {
	if !l.cfg.Log.Enabled(context.Background(), slog.LevelError) { // no filter hides it
		fmt.Fprintf(os.Stderr, "SELF-FENCE: %s: session %s: %v; %s\n", event, l.session, cause, nextStep[event])
	}
	l.cfg.Log.Error("SELF-FENCE: "+string(event)+": this node stops at once and exits with code 3; "+nextStep[event],
		"event", string(event), "session", l.session, "code", ExitCode, "err", cause)
}

// within waits for do, and no longer than d.
func within(d time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
