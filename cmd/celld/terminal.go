package main

import (
	"os"
	"runtime/debug"
	"strings"
)

// colours tells whether f shows them and the user has not said no.
func colours(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// failure is an error as a person reads it.
func failure(f *os.File, err error) string {
	text := strings.TrimSpace(err.Error())
	if colours(f) {
		return "\x1b[31;1merror:\x1b[0m " + text
	}
	return "error: " + text
}

// version is what the build says of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return v + " " + info.GoVersion
}
