package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"celld/internal/bucket"
	"celld/internal/bucket/open"
)

// roleEnv turns a test binary into one of the contenders.
const roleEnv = "CELLD_BUCKETTEST_ROLE"

// Main runs the tests of a binary, or the role that another run of it gave it.
func Main(m *testing.M) int {
	role := os.Getenv(roleEnv)
	if role == "" {
		return m.Run()
	}
	s, err := open.Bucket(context.Background(), os.Getenv(roleEnv+"_URL"), open.Options{})
	if err == nil {
		err = roles[role](s, os.Getenv(roleEnv+"_ARG"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

var roles = map[string]func(s bucket.Store, arg string) error{"race": raceRole, "write": writeRole}

// command re-executes this test binary in a role.
func command(t testing.TB, role, url, arg string, env []string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), env...), roleEnv+"="+role, roleEnv+"_URL="+url, roleEnv+"_ARG="+arg)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

const (
	racers     = 8
	raceRounds = 25 // creations fought over, and increments of each process
)

// RaceProcesses lets eight processes create the same keys and increment one number.
func RaceProcesses(t *testing.T, url string, env []string) {
	s := Open(t, url, env)
	if _, err := s.Put(t.Context(), "race/n", []byte("0")); err != nil {
		t.Fatal(err)
	}
	wins := make([]string, racers)
	var group sync.WaitGroup
	for i := range racers {
		cmd := command(t, "race", url, strconv.Itoa(i), env)
		group.Go(func() {
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("process %d: %v: %s", i, err, stderr.String())
			}
			wins[i] = string(out)
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	checkWins(t, s, wins)
	if body, _, err := s.Get(t.Context(), "race/n"); err != nil || string(body) != strconv.Itoa(racers*raceRounds) {
		t.Errorf("%d increments made %s (%v)", racers*raceRounds, body, err)
	}
}

// checkWins compares what each process believes to have created with what is there.
func checkWins(t *testing.T, s bucket.Store, wins []string) {
	owner := map[string]string{}
	for i, text := range wins {
		for key := range strings.FieldsSeq(text) {
			if other, ok := owner[key]; ok {
				t.Errorf("processes %s and %d both created %s", other, i, key)
			}
			owner[key] = strconv.Itoa(i)
		}
	}
	for round := range raceRounds {
		key := fmt.Sprint("race/", round)
		body, _, err := s.Get(t.Context(), key)
		if err != nil || string(body) != owner[key] {
			t.Errorf("%s holds %q (%v), its creator is process %q", key, body, err, owner[key])
		}
	}
}

func raceRole(s bucket.Store, me string) error {
	ctx := context.Background()
	for round := range raceRounds {
		key := fmt.Sprint("race/", round)
		switch _, err := s.Create(ctx, key, []byte(me)); {
		case err == nil:
			fmt.Println(key)
		case !errors.Is(err, bucket.ErrPrecondition):
			return err
		}
		if err := increment(ctx, s, "race/n"); err != nil {
			return err
		}
	}
	return nil
}
