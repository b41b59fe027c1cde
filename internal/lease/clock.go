package lease

import (
	"time"

	"celld/internal/lease/watchdog"
)

// Clock is the two clocks that authority is judged by.
type Clock interface {
	Wall() time.Time
	// Boot goes on while the machine sleeps, and is never set.
	Boot() time.Duration
}

// System are this machine's clocks.
type System struct{}

func (System) Wall() time.Time { return time.Now().Round(0) } // without Go's monotonic reading, which stops in sleep

func (System) Boot() time.Duration { return watchdog.Now() }

// Bubble are clocks that testing/synctest drives.
type Bubble struct{}

func (Bubble) Wall() time.Time     { return time.Now() }
func (Bubble) Boot() time.Duration { return time.Duration(time.Now().UnixNano()) }
