package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"celld/internal/hostcall"
	"celld/internal/jsstorage"
	"celld/internal/v8"
	"celld/internal/webapi"
	"celld/internal/webcrypto"
	"celld/runtime"
)

// table is every host function by number. Number 0 is none, so that a missing
// one cannot be mistaken for the first.
type table struct {
	ops    []hostcall.Op
	number map[string]int
}

func newTable(lists ...[]hostcall.Op) (*table, error) {
	t := &table{ops: []hostcall.Op{{}}, number: map[string]int{}}
	for _, l := range lists {
		for _, op := range l {
			if _, twice := t.number[op.Name]; twice {
				return nil, fmt.Errorf("host function %s is in two tables", op.Name)
			}
			if (op.Sync == nil) == (op.Async == nil) {
				return nil, fmt.Errorf("host function %s must be either synchronous or asynchronous", op.Name)
			}
			t.number[op.Name] = len(t.ops)
			t.ops = append(t.ops, op)
		}
	}
	return t, nil
}

// Runtime is what all isolates of a process share: the host functions and the
// snapshot in which the runtime's JavaScript has been loaded.
type Runtime struct {
	table    *table
	snapshot *v8.Blob
	watch    *watchdog
}

var (
	snapshotOnce sync.Mutex // one at a time: V8's snapshot creator is not reentrant
	// ErrSnapshot: the runtime's own JavaScript does not load, which is a bug of the build.
	ErrSnapshot = errors.New("the JavaScript runtime does not load")
)

// NewRuntime loads the runtime's JavaScript with all host functions; it takes about 30 ms.
func NewRuntime() (*Runtime, error) {
	t, err := newTable(ops(), webapi.Ops(), webcrypto.Ops(), jsstorage.Ops())
	if err != nil {
		return nil, err
	}
	js, err := runtime.Script()
	if err != nil {
		return nil, err
	}
	numbers, err := json.Marshal(t.number)
	if err != nil {
		return nil, err
	}
	snapshotOnce.Lock()
	defer snapshotOnce.Unlock()
	v8.Init("--js-explicit-resource-management", 0)
	blob, err := v8.CreateSnapshot("globalThis.__ops = "+string(numbers)+";\n"+js, "", true)
	if err != nil {
		return nil, fmt.Errorf("%w: %v (its exception is on standard error)", ErrSnapshot, err)
	}
	return &Runtime{table: t, snapshot: blob, watch: newWatchdog()}, nil
}
