// Package watchdog ends the process when its lease is over, whatever the rest of
// it does. It is a thread of the operating system that Go knows nothing of: no
// goroutine needs to be scheduled, no lock to be free, no garbage collection to
// end. It takes no signals, so that no handler of Go's ever runs on it, and it
// does not wait for anybody to read its last words. It looks at a clock that goes
// on in sleep, so that a process which was stopped and continued is ended too.
package watchdog

/*
#cgo noescape boot_now
#cgo nocallback boot_now
#cgo noescape set
#cgo nocallback set
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define LOOK (SECOND / 5) // between two looks at the deadline: it moves

static _Atomic long long deadline; // CLOCK_BOOTTIME, nanoseconds; 0: not armed
static _Atomic int said;
static long long grace;

// boot_now goes through the vDSO: a read costs no system call.
static long long boot_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

// sleep_until is over as soon as the machine wakes up after t.
static void sleep_until(long long t) {
	struct timespec until = {t / SECOND, t % SECOND};
	clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL);
}

// detached starts a thread that takes no signals.
static int detached(void *(*run)(void *)) {
	pthread_t t;
	pthread_attr_t a;
	sigset_t all, before;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&t, &a, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&a);
	return rc;
}

static void *say(void *arg) {
	static const char line[] = "SELF-FENCE: node_lease_watchdog_fence: the lease is over and the process did not stop by itself in time; "
		"the watchdog ends it with code 3; look for what kept it: a busy machine, a stop signal, a sleep of the machine\n";
	ssize_t n = write(2, line, sizeof line - 1);
	(void)n;
	atomic_store(&said, 1);
	return NULL;
}

// end ends the process. Standard error may be a pipe that is full, which would
// hold the writer for ever: so another thread writes, and has a moment for it.
static void end(void) {
	if (detached(say) == 0)
		for (int i = 0; i < 50 && !atomic_load(&said); i++)
			sleep_until(boot_now() + SECOND / 1000);
	_exit(3);
}

static void *watch(void *arg) {
	prctl(PR_SET_NAME, "lease-watchdog");
	for (;;) {
		long long d = atomic_load(&deadline), t = boot_now();
		if (d != 0 && t >= d + grace)
			end(); // Go was told at the deadline and had its grace.
		long long next = t + LOOK;
		if (d != 0 && d + grace < next)
			next = d + grace;
		sleep_until(next);
	}
	return NULL;
}

static int start(long long g) {
	grace = g;
	return detached(watch);
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

// Now is the time on the boot clock, the one that the thread looks at.
func Now() time.Duration { return time.Duration(C.boot_now()) }
