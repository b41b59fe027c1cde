package buckettest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"celld/internal/bucket"
)

const killRounds = 12

// KillWriters kills a writing process at random points, again and again, and checks
// that what it saw acknowledged stands, and that nothing half-written does.
func KillWriters(t *testing.T, url string, env []string) {
	s := Open(t, url, env)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	acknowledged := 0
	for round := range killRounds {
		cmd := command(t, "write", url, strconv.Itoa(round), env)
		got := runAndKill(t, cmd, 1+rnd.IntN(150))
		acknowledged += len(got)
		checkWritten(t, s, round, got)
	}
	t.Logf("%d acknowledged writes", acknowledged)
}

// runAndKill kills the writer behind a number of acknowledgements, wherever it is
// by then, and returns all that it printed.
func runAndKill(t *testing.T, cmd *exec.Cmd, after int) (lines []string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			break // also a line that was cut
		}
		if lines = append(lines, strings.TrimSpace(line)); len(lines) == after {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(lines) < after {
		t.Fatalf("the writer ended on its own after %d writes: %v", len(lines), cmd.ProcessState)
	}
	return lines
}

// checkWritten reads everything of one round back.
func checkWritten(t *testing.T, s bucket.Store, round int, acknowledged []string) {
	t.Helper()
	for _, line := range acknowledged {
		key, n, _ := strings.Cut(line, " ")
		least, _ := strconv.Atoi(n)
		if got := storedNumber(t, s, key); got < least {
			t.Errorf("%s: %d was acknowledged, %d is there", key, least, got)
		}
	}
	for o, err := range s.List(t.Context(), fmt.Sprint("kill/", round, "/"), "") {
		if err != nil {
			t.Fatal(err)
		}
		storedNumber(t, s, o.Key)
	}
}

// storedNumber reads a number that writeRole stored, and checks that it is whole.
func storedNumber(t *testing.T, s bucket.Store, key string) int {
	t.Helper()
	body, _, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimLeft(string(body[:min(8, len(body))]), " "))
	if err != nil || !bytes.Equal(body, numbered(n)) {
		t.Fatalf("%s holds half a write: %d bytes %.40q", key, len(body), body)
	}
	return n
}

// numbered is a body of varying size that is a function of a number.
func numbered(n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%8d", n), 1+n*37%5000)
}

// writeRole writes for ever by every way of writing, and prints what was acknowledged.
func writeRole(s bucket.Store, round string) error {
	ctx := context.Background()
	swapped := "kill/" + round + "/swapped"
	version, err := s.Create(ctx, swapped, numbered(0))
	for n := 1; err == nil; n++ {
		key := fmt.Sprintf("kill/%s/%d/%d", round, n%7, n)
		switch n % 4 {
		case 0:
			key = "kill/" + round + "/put"
			_, err = s.Put(ctx, key, numbered(n))
		case 1:
			key = swapped
			version, err = s.Swap(ctx, key, numbered(n), version)
		case 2:
			_, err = s.Create(ctx, key, numbered(n))
		default:
			body := numbered(n)
			_, err = s.PutStream(ctx, key, io.MultiReader(bytes.NewReader(body)), int64(len(body)), bucket.PutOptions{})
		}
		if err == nil {
			fmt.Println(key, n)
		}
	}
	return errors.Join(errors.New("the writer failed"), err)
}
