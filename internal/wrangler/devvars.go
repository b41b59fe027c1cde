package wrangler

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DevVarsFiles are the files that LoadDevVars looks at, the one it prefers first.
func DevVarsFiles(dir, env string) []string {
	plain := filepath.Join(dir, ".dev.vars")
	if env == "" {
		return []string{plain}
	}
	return []string{plain + "." + env, plain}
}

// LoadDevVars reads the secrets for local development: .dev.vars.ENV if it is
// there, else .dev.vars, else nothing.
func LoadDevVars(dir, env string) (map[string]string, error) {
	for _, file := range DevVarsFiles(dir, env) {
		body, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return ParseDevVars(file, body)
	}
	return nil, nil
}

// ParseDevVars reads lines of NAME=value in the manner of dotenv: quotes of
// three kinds may span lines, \n and friends count inside double quotes, and a #
// starts a comment outside of quotes.
func ParseDevVars(file string, body []byte) (map[string]string, error) {
	p := &dotenv{source: &source{name: file, text: body}, vars: map[string]string{}}
	for p.pos < len(body) {
		p.line()
	}
	return p.vars, p.err()
}

type dotenv struct {
	*source
	pos  int
	vars map[string]string
}

// rest is the line from pos on, without its end.
func (p *dotenv) rest() string {
	line, _, _ := strings.Cut(string(p.text[p.pos:min(p.pos+maxFile, len(p.text))]), "\n")
	return line
}

func (p *dotenv) line() {
	start, line := p.pos, p.rest()
	trimmed := strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
	if trimmed == "" || strings.HasPrefix(trimmed, "#") {
		p.pos += len(line) + 1
		return
	}
	name, after, ok := strings.Cut(line, "=")
	name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")), "export "))
	if !ok || !identifier(name) {
		// The text of the line may be a secret: show the place only.
		problem := p.at(start, start)
		problem.Source, problem.Length = "", 0
		problem.Text, problem.Note = "this line is not of the form NAME=value", "names hold letters, digits and _"
		p.found = append(p.found, problem)
		p.pos += len(line) + 1
		return
	}
	p.pos += len(line) - len(after)
	p.vars[name] = p.value()
}

func (p *dotenv) value() string {
	line := p.rest()
	p.pos += len(line) - len(strings.TrimLeft(line, " \t"))
	if p.pos < len(p.text) && strings.IndexByte("\"'`", p.text[p.pos]) >= 0 {
		if v, ok := p.quoted(p.text[p.pos]); ok {
			return v
		}
	}
	line = p.rest()
	p.pos += len(line) + 1
	if i := strings.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

// quoted reads to the closing quote; without one the value is the bare line.
func (p *dotenv) quoted(quote byte) (string, bool) {
	body := string(p.text[p.pos+1:])
	end := 0
	for end < len(body) && body[end] != quote {
		if body[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(body) {
		return "", false
	}
	p.pos += 1 + end + 1
	p.pos += len(p.rest()) + 1
	if quote == '"' {
		return strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`, `\\`, `\`).Replace(body[:end]), true
	}
	return body[:end], true
}
