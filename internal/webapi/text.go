package webapi

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/transform"

	"celld/internal/hostcall"
)

var textOps = []hostcall.Op{
	{Name: "text.utf8", Sync: func(f hostcall.Frame) error {
		f.SetStr(string(f.Arg(0).Bytes())) // V8 replaces what is malformed as the standard says
		return nil
	}},
	{Name: "text.encode", Sync: func(f hostcall.Frame) error {
		f.SetBytes([]byte(f.Arg(0).Str()))
		return nil
	}},
	{Name: "text.encodeInto", Sync: encodeInto},
	{Name: "text.valid", Sync: func(f hostcall.Frame) error {
		f.SetBool(utf8.Valid(f.Arg(0).Bytes()))
		return nil
	}},
	{Name: "text.label", Sync: label},
	{Name: "text.decode", Sync: decode},
	{Name: "text.atob", Sync: atob},
	{Name: "text.btoa", Sync: btoa},
}

// encodeInto (text, target, counts): counts becomes UTF-16 units read, bytes written.
func encodeInto(f hostcall.Frame) error {
	text, target, counts := f.Arg(0).Str(), f.Arg(1).Bytes(), f.Arg(2).Bytes()
	read, written := 0, 0
	for _, r := range text {
		n := utf8.RuneLen(r)
		if written+n > len(target) {
			break
		}
		written += utf8.EncodeRune(target[written:], r)
		read++
		if r > 0xffff {
			read++
		}
	}
	binary.LittleEndian.PutUint32(counts, uint32(read))
	binary.LittleEndian.PutUint32(counts[4:], uint32(written))
	return nil
}

// label gives the name of the encoding that a label means, or null.
func label(f hostcall.Frame) error {
	if name, _ := encodingFor(f.Arg(0).Str()); name != "" {
		f.SetStr(name)
	} else {
		f.SetNull()
	}
	return nil
}

func encodingFor(label string) (string, encoding.Encoding) {
	e, err := htmlindex.Get(label)
	if err != nil || e == encoding.Replacement {
		return "", nil
	}
	name, err := htmlindex.Name(e)
	if err != nil {
		return "", nil
	}
	return name, e
}

var errDecode = &hostcall.Throw{Class: "TypeError", Message: "Failed to decode input."}

// decode (encoding, bytes, last, fatal, state) decodes what is complete. state is two
// int32: it receives how many bytes were used, and keeps the mode of ISO-2022-JP.
func decode(f hostcall.Frame) error {
	name, src, last, fatal, state := f.Arg(0).Str(), f.Arg(1).Bytes(), f.Arg(2).Bool(), f.Arg(3).Bool(), f.Arg(4).Bytes()
	_, e := encodingFor(name)
	if e == nil {
		return &hostcall.Throw{Class: "RangeError", Message: "unknown encoding " + name}
	}
	prefix := modes[binary.LittleEndian.Uint32(state[4:])]
	text, used, err := decodeAll(e, append([]byte(prefix), src...), last)
	if err != nil {
		return err
	}
	used = max(0, used-len(prefix))
	if name == "iso-2022-jp" {
		binary.LittleEndian.PutUint32(state[4:], modeAfter(prefix, src[:used]))
	}
	binary.LittleEndian.PutUint32(state, uint32(used))
	if fatal && strings.ContainsRune(text, utf8.RuneError) {
		return errDecode
	}
	f.SetStr(text)
	return nil
}

// modes of ISO-2022-JP are the escape sequences that bring them about; the first is ASCII.
var modes = []string{"", "\x1b(J", "\x1b(I", "\x1b$@", "\x1b$B"}

func modeAfter(prefix string, src []byte) uint32 {
	s := prefix + string(src)
	mode, at := uint32(0), strings.LastIndex(s, "\x1b(B")
	for m := 1; m < len(modes); m++ {
		if i := strings.LastIndex(s, modes[m]); i > at {
			mode, at = uint32(m), i
		}
	}
	return mode
}

// decodeAll decodes as much of src as is complete; with last, all of it.
func decodeAll(e encoding.Encoding, src []byte, last bool) (string, int, error) {
	var out strings.Builder
	d := e.NewDecoder()
	dst := make([]byte, max(64, min(3*len(src)+16, 64<<10)))
	used := 0
	for {
		nDst, nSrc, err := d.Transformer.Transform(dst, src[used:], last)
		out.Write(dst[:nDst])
		used += nSrc
		switch {
		case err == nil:
			return out.String(), used, nil
		case errors.Is(err, transform.ErrShortDst) && nDst+nSrc > 0:
		case errors.Is(err, transform.ErrShortSrc) && !last:
			return out.String(), used, nil
		case errors.Is(err, transform.ErrShortSrc):
			out.WriteRune(utf8.RuneError)
			return out.String(), len(src), nil
		default:
			return "", 0, errDecode
		}
	}
}

var spaces = strings.NewReplacer(" ", "", "\t", "", "\n", "", "\f", "", "\r", "")

// atob is the standard's forgiving decode: null when it is not base64.
func atob(f hostcall.Frame) error {
	s := f.Arg(0).Str()
	if strings.ContainsAny(s, " \t\n\f\r") {
		s = spaces.Replace(s)
	}
	if len(s)%4 == 0 {
		if strings.HasSuffix(s, "==") {
			s = s[:len(s)-2]
		} else {
			s = strings.TrimSuffix(s, "=")
		}
	}
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		f.SetNull()
		return nil
	}
	f.SetStr(fromLatin1(b))
	return nil
}

func fromLatin1(b []byte) string {
	out := make([]byte, 0, len(b)+len(b)/2)
	for _, c := range b {
		out = utf8.AppendRune(out, rune(c))
	}
	return string(out)
}

// btoa is null when a character is beyond Latin-1.
func btoa(f hostcall.Frame) error {
	s := f.Arg(0).Str()
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			f.SetNull()
			return nil
		}
		b = append(b, byte(r))
	}
	f.SetStr(base64.StdEncoding.EncodeToString(b))
	return nil
}
