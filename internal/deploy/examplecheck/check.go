// Package examplecheck asks a running Worker what its check.txt says: lines of
// "request => answer", the same for celld and for workerd. The format is
// described in examples/README.md.
package examplecheck

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAnswer bounds how much of an answer is read.
	maxAnswer = 1 << 20
	// askAgain spaces the requests of an "eventually" line.
	askAgain = 20 * time.Millisecond
)

// Line is one request and the answer that it must get.
type Line struct {
	Number     int
	Eventually bool
	Method     string
	Path       string
	Body       string
	Status     int
	Answer     string // "" with Any
	Any        bool   // the body is not looked at
	text       string
}

// ReadFile reads a check.txt.
func ReadFile(file string) ([]Line, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", file, err)
	}
	return lines, nil
}

// Parse reads lines. The error starts with the number of the line.
func Parse(r io.Reader) ([]Line, error) {
	var out []Line
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxAnswer)
	for n := 1; sc.Scan(); n++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		l.Number = n
		out = append(out, l)
	}
	return out, sc.Err()
}

func parseLine(text string) (Line, error) {
	l := Line{text: text, Status: http.StatusOK}
	request, answer, ok := strings.Cut(text+" ", " => ")
	if !ok {
		return l, errors.New(`a line is "METHOD PATH [BODY] => [STATUS] [ANSWER]"`)
	}
	l.Method, request = word(request)
	if l.Method == "eventually" {
		l.Eventually = true
		l.Method, request = word(request)
	}
	l.Path, l.Body = word(request)
	if !strings.HasPrefix(l.Path, "/") || l.Method != strings.ToUpper(l.Method) {
		return l, fmt.Errorf("%q is not a method and a path", l.Method+" "+l.Path)
	}
	answer = strings.TrimSpace(answer)
	first, rest := word(answer)
	if status, err := strconv.Atoi(first); err == nil && len(first) == 3 {
		l.Status, answer = status, rest
		l.Any = rest == ""
	}
	l.Answer = answer
	if pattern, ok := strings.CutPrefix(answer, "~ "); ok {
		if _, err := regexp.Compile(pattern); err != nil {
			return l, err
		}
	} else {
		l.Answer = strings.ReplaceAll(answer, `\n`, "\n")
	}
	return l, nil
}

func word(s string) (first, rest string) {
	first, rest, _ = strings.Cut(strings.TrimSpace(s), " ")
	return first, strings.TrimSpace(rest)
}

// Run asks base, such as http://127.0.0.1:9876, line after line, and returns every
// answer that was wrong. An "eventually" line is asked until ctx ends.
func Run(ctx context.Context, base string, lines []Line) error {
	run := strings.ToLower(rand.Text()[:10])
	var wrong []error
	for _, l := range lines {
		if err := l.check(ctx, base, run); err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %s\n  %w", l.Number, l.text, err))
		}
	}
	return errors.Join(wrong...)
}

func (l Line) check(ctx context.Context, base, run string) error {
	for {
		err := l.ask(ctx, base, run)
		if err == nil || !l.Eventually {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

func (l Line) ask(ctx context.Context, base, run string) error {
	fill := strings.NewReplacer("$RUN", run).Replace
	var body io.Reader
	if l.Body != "" {
		body = strings.NewReader(fill(l.Body))
	}
	req, err := http.NewRequestWithContext(ctx, l.Method, base+fill(l.Path), body)
	if err != nil {
		return err
	}
	if isJSON(l.Body) {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != l.Status {
		return fmt.Errorf("status %d, want %d; body %q", resp.StatusCode, l.Status, got)
	}
	if !l.Any && !fits(fill(l.Answer), string(got)) {
		return fmt.Errorf("got %q", got)
	}
	return nil
}

func fits(want, got string) bool {
	if pattern, ok := strings.CutPrefix(want, "~ "); ok {
		return regexp.MustCompile(pattern).MatchString(got)
	}
	if isJSON(want) {
		var a, b any
		return json.Unmarshal([]byte(want), &a) == nil && json.Unmarshal([]byte(got), &b) == nil && reflect.DeepEqual(a, b)
	}
	return strings.TrimSpace(got) == strings.TrimSpace(want)
}

func isJSON(s string) bool { return strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") }
