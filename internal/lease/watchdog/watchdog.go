// Package watchdog ends the process when its lease is over, whatever the rest of
// it does. It is a thread of the operating system that Go knows nothing of: no
// goroutine needs to be scheduled, no lock to be free, no garbage collection to
// end. It looks at a clock that goes on in sleep, so that a process which was
// stopped and continued is ended too.
package watchdog

/*
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic long long deadline; // CLOCK_BOOTTIME, nanoseconds; 0: not armed
static long long grace;

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *watch(void *arg) {
	for (;;) {
		long long end = atomic_load(&deadline);
		long long left = end == 0 ? 1000000000LL : end + grace - now();
		if (left <= 0) {
			// Go was told at the deadline and had its grace.
			static const char line[] = "SELF-FENCE: node_lease_watchdog_fence: the lease is over and the process did not stop by itself; the watchdog ends it with code 3\n";
			ssize_t n = write(2, line, sizeof line - 1);
			(void)n;
			_exit(3);
		}
		if (left > 200000000LL) left = 200000000LL; // the deadline moves
		struct timespec t = {left / 1000000000LL, left % 1000000000LL};
		nanosleep(&t, NULL);
	}
	return NULL;
}

static int start(long long g) {
	pthread_t t;
	pthread_attr_t a;
	grace = g;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	int rc = pthread_create(&t, &a, watch, NULL);
	pthread_attr_destroy(&a);
	return rc;
}

static void set(long long d) { atomic_store(&deadline, d); }
*/
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"time"
)

var (
	once  sync.Once
	start error
)

// Start runs the thread. grace is how long after the deadline the process may
// take to fence itself in order.
func Start(grace time.Duration) error {
	once.Do(func() {
		if rc := C.start(C.longlong(grace)); rc != 0 {
			start = fmt.Errorf("start the lease watchdog: %w", syscall.Errno(rc))
		}
	})
	return start
}

// Deadline moves the end of the lease, on the boot clock. 0 disarms.
func Deadline(d time.Duration) { C.set(C.longlong(d)) }
