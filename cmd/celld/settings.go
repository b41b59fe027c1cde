package main

import (
	"os"

	"github.com/spf13/pflag"

	"celld/internal/node"
)

// settingFlags adds a flag for every setting that has one, and returns the
// settings that environment and flags make together once the flags are parsed.
func settingFlags(fs *pflag.FlagSet, only ...string) func(base node.Settings) (node.Settings, error) {
	given := map[string]string{}
	wanted := map[string]bool{}
	for _, o := range only {
		wanted[o] = true
	}
	defaults := node.Defaults()
	for _, row := range node.Table {
		if row.Flag == "" || len(only) > 0 && !wanted[row.Flag] {
			continue
		}
		v := &settingValue{given: given, name: row.Flag, text: row.Get(&defaults), isBool: row.Bool}
		f := fs.VarPF(v, row.Flag, "", row.Usage+" ["+row.Env+"]")
		if row.Bool {
			f.NoOptDefVal = "1"
		}
	}
	return func(s node.Settings) (node.Settings, error) {
		if err := s.FromEnv(os.Environ()); err != nil {
			return s, err
		}
		for _, row := range node.Table {
			if text, ok := given[row.Flag]; ok && row.Flag != "" {
				if err := row.Set(&s, text); err != nil {
					return s, err
				}
			}
		}
		return s, nil
	}
}

// settingValue remembers what was given; the setting's own row checks it later.
type settingValue struct {
	given  map[string]string
	name   string
	text   string
	isBool bool
}

func (v *settingValue) String() string { return v.text }
func (v *settingValue) Set(s string) error {
	v.text, v.given[v.name] = s, s
	return nil
}

func (v *settingValue) Type() string {
	if v.isBool {
		return "bool"
	}
	return "value"
}
