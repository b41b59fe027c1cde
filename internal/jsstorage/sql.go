package jsstorage

import (
	"time"

	"celld/internal/hostcall"
	"celld/internal/storage"
)

func unixMilli(ms float64) time.Time { return time.UnixMilli(int64(ms)) }

// values are the arguments from at on, as they are bound. Numbers of JavaScript are floats.
func values(f hostcall.Frame, at int) []any {
	out := make([]any, 0, f.Len()-at)
	for i := at; i < f.Len(); i++ {
		a := f.Arg(i)
		switch a.Kind() {
		case hostcall.Number:
			out = append(out, a.Num())
		case hostcall.String:
			out = append(out, a.Str())
		case hostcall.Buffer:
			out = append(out, append([]byte{}, a.Bytes()...))
		default:
			out = append(out, nil)
		}
	}
	return out
}

// prefetch is how many rows a query brings back at once when it starts: two, so
// that a query for one row is known to be over without another call.
const prefetch = 2

// exec is sql.exec(query, binds…) -> [cursor, columns, rows, read, written]; cursor is 0 when no rows are left.
func exec(s *storage.Storage, f hostcall.Frame) error {
	c, err := s.Exec(f.Arg(0).Str(), s.Bound(values(f, 1))...)
	if err != nil {
		return err
	}
	return answer(c, f, prefetch, true)
}

// next is sql.next(cursor) -> [cursor, rows, read, written] with at most one row.
func next(s *storage.Storage, f hostcall.Frame) error { return more(s, f, 1) }

// rest is sql.rest(cursor), the same with all the rows that are left.
func rest(s *storage.Storage, f hostcall.Frame) error { return more(s, f, 0) }

func more(s *storage.Storage, f hostcall.Frame, n int) error {
	c := s.Cursor(uint32(f.Arg(0).Int()))
	if c == nil { // ended, by deleteAll or with its transaction
		f.SetTuple([]hostcall.Value{hostcall.Num(0), {}, hostcall.Num(0), hostcall.Num(0)})
		return nil
	}
	return answer(c, f, n, false)
}

// answer gives up to n rows (0: all) and what is known of the cursor then.
func answer(c *storage.Cursor, f hostcall.Frame, n int, columns bool) error {
	w := writer{b: make([]byte, 0, 128)}
	rows, err := w.rows(c, n)
	if err != nil {
		return err
	}
	open := float64(0)
	if !c.Done() {
		open = float64(c.ID())
	}
	out := make([]hostcall.Value, 0, 5)
	out = append(out, hostcall.Num(open))
	if columns {
		out = append(out, hostcall.Text(c.PackedColumns()))
	}
	if rows > 0 {
		out = append(out, hostcall.Cloned(w.b))
	} else {
		out = append(out, hostcall.Value{})
	}
	f.SetTuple(append(out, hostcall.Num(float64(c.RowsRead())), hostcall.Num(float64(c.RowsWritten()))))
	return nil
}

func closeCursor(s *storage.Storage, f hostcall.Frame) error {
	if c := s.Cursor(uint32(f.Arg(0).Int())); c != nil {
		c.Close()
	}
	return nil
}
