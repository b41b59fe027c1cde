package wrangler

import (
	"errors"
	"path"
	"regexp"
	"strings"
)

// maxGlob bounds one glob; a longer one is a mistake.
const maxGlob = 1024

// Defaults are the rules that hold behind a Worker's own: what wrangler has.
var Defaults = []Rule{
	{Type: "Text", Globs: []string{"**/*.txt", "**/*.html", "**/*.sql"}},
	{Type: "Data", Globs: []string{"**/*.bin"}},
	{Type: "CompiledWasm", Globs: []string{"**/*.wasm", "**/*.wasm?module"}},
}

// Matcher gives files their module types.
type Matcher struct{ rules []compiled }

type compiled struct {
	kind  string
	globs []glob
}

type glob struct {
	expr *regexp.Regexp
	base bool // without a slash: matches the file name alone
}

// NewMatcher compiles a Worker's rules and the default rules behind them. As
// in wrangler, a rule for a type without fallthrough ends the rules for that
// type, the default one too.
func NewMatcher(rules []Rule) (*Matcher, error) {
	m := &Matcher{}
	closed := map[string]bool{}
	for _, r := range append(append([]Rule(nil), rules...), Defaults...) {
		if closed[r.Type] {
			continue
		}
		closed[r.Type] = !r.Fallthrough
		c := compiled{kind: r.Type}
		for _, g := range r.Globs {
			x, err := compileGlob(g)
			if err != nil {
				return nil, err
			}
			c.globs = append(c.globs, x)
		}
		m.rules = append(m.rules, c)
	}
	return m, nil
}

// Type is the module type of a file by any of its names (as it was imported,
// and below the base directory), or "" if no rule speaks of it.
func (m *Matcher) Type(names ...string) string {
	for _, r := range m.rules {
		for _, g := range r.globs {
			for _, name := range names {
				if g.match(strings.TrimPrefix(name, "./")) {
					return r.kind
				}
			}
		}
	}
	return ""
}

func (g glob) match(name string) bool {
	return g.expr.MatchString(name) || g.base && g.expr.MatchString(path.Base(name))
}

// compileGlob knows * (not across slashes) and ** (across them). Everything
// else stands for itself, the question mark of "?module" too.
func compileGlob(s string) (glob, error) {
	if s == "" {
		return glob{}, errors.New("is empty")
	}
	if len(s) > maxGlob {
		return glob{}, errors.New("is too long")
	}
	s = strings.TrimPrefix(s, "./")
	var b strings.Builder
	b.WriteString("^")
	for rest := s; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString("[^/]*")
			rest = rest[1:]
		default:
			n := strings.IndexByte(rest, '*')
			if n < 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			rest = rest[n:]
		}
	}
	b.WriteString("$")
	expr, err := regexp.Compile(b.String())
	if err != nil {
		return glob{}, errors.New("is not valid UTF-8")
	}
	return glob{expr: expr, base: !strings.Contains(s, "/")}, nil
}
