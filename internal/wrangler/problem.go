package wrangler

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxProblems bounds how many problems one file is told about; the rest is
// counted. A person mends the first few and runs again.
const maxProblems = 20

// Problem is one thing wrong, or worth saying, at one place of a file.
type Problem struct {
	File   string
	Line   int // from 1; 0: the file as a whole
	Column int // from 1, in characters
	Length int // of the marked text, in characters
	Source string
	Text   string
	Note   string // what to do
	Notice bool   // nothing is wrong
}

// Error is the problem in one line.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	} else if p.File != "" {
		fmt.Fprintf(&b, "%s: ", p.File)
	}
	b.WriteString(p.Text)
	if p.Note != "" {
		b.WriteString(" (" + p.Note + ")")
	}
	return b.String()
}

// Format is the problem with its line and a mark under the place.
func (p *Problem) Format() string {
	var b strings.Builder
	kind := "✘ [ERROR]"
	if p.Notice {
		kind = "▲ [NOTICE]"
	}
	fmt.Fprintf(&b, "%s %s\n", kind, p.Text)
	switch {
	case p.Line > 0:
		fmt.Fprintf(&b, "\n    %s:%d:%d:\n", p.File, p.Line, p.Column)
		number := fmt.Sprint(p.Line)
		fmt.Fprintf(&b, "      %s │ %s\n", number, p.Source)
		fmt.Fprintf(&b, "      %s ╵ %s%s\n", strings.Repeat(" ", len(number)), indent(p.Source, p.Column-1), mark(p.Length))
	case p.File != "":
		fmt.Fprintf(&b, "\n    %s\n", p.File)
	}
	if p.Note != "" {
		fmt.Fprintf(&b, "\n  %s\n", p.Note)
	}
	return b.String()
}

// indent is as wide as the first n characters of line, tabs kept.
func indent(line string, n int) string {
	var b strings.Builder
	for _, r := range line {
		if n--; n < 0 {
			break
		}
		if r == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func mark(length int) string {
	if length <= 1 {
		return "^"
	}
	return strings.Repeat("~", length)
}

// Problems are all the errors of one configuration.
type Problems []*Problem

// Error shows every problem at its place.
func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i == maxProblems {
			fmt.Fprintf(&b, "… and %d more\n", len(ps)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Format())
	}
	return strings.TrimRight(b.String(), "\n")
}

// source is one file that is being read.
type source struct {
	name  string
	text  []byte
	found Problems
	notes Problems
}

// errorf records a problem at text[pos:end].
func (s *source) errorf(pos, end int, note, format string, args ...any) {
	p := s.at(pos, end)
	p.Text, p.Note = fmt.Sprintf(format, args...), note
	s.found = append(s.found, p)
}

func (s *source) noticef(pos, end int, note, format string, args ...any) {
	p := s.at(pos, end)
	p.Text, p.Note, p.Notice = fmt.Sprintf(format, args...), note, true
	s.notes = append(s.notes, p)
}

// at is an empty problem at text[pos:end]; pos < 0 means the whole file.
func (s *source) at(pos, end int) *Problem {
	if pos < 0 {
		return &Problem{File: s.name}
	}
	pos = min(pos, len(s.text))
	end = min(max(end, pos), len(s.text))
	start := bytes.LastIndexByte(s.text[:pos], '\n') + 1
	stop := len(s.text)
	if i := bytes.IndexByte(s.text[pos:], '\n'); i >= 0 {
		stop = pos + i
	}
	end = min(end, stop)
	return &Problem{
		File: s.name, Line: 1 + bytes.Count(s.text[:start], []byte{'\n'}),
		Column: 1 + utf8.RuneCount(s.text[start:pos]), Length: utf8.RuneCount(s.text[pos:max(end, pos)]),
		Source: strings.TrimRight(strings.ToValidUTF8(string(s.text[start:stop]), "�"), "\r"),
	}
}

// err is what was found, in the order of the file, or nil.
func (s *source) err() error {
	if len(s.found) == 0 {
		return nil
	}
	slices.SortStableFunc(s.found, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return s.found
}
