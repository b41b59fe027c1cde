package jsstorage

import (
	"encoding/binary"
	"math"

	"celld/internal/storage"
)

// writer makes structured-clone bytes of rows, which V8 turns into arrays
// without any JavaScript running. The format is V8's own serialization, version
// 15; of it this needs dense arrays, numbers, strings, buffers and null.
type writer struct{ b []byte }

const (
	tagVersion = 0xff
	version    = 15
	tagArray   = 'A'
	tagArrayE  = '$'
	tagNull    = '0'
	tagInt     = 'I'
	tagDouble  = 'N'
	tagUTF8    = 'S'
	tagBuffer  = 'B'
)

// rows writes up to n rows (0: all that are left) as an array of arrays and
// returns how many it wrote. The number stands at the front, so they are
// written behind a gap first.
func (w *writer) rows(c *storage.Cursor, n int) (int, error) {
	body := writer{b: w.b[:0]}
	columns := len(c.Columns())
	count := 0
	for c.HasRow() && (n == 0 || count < n) {
		body.b = append(body.b, tagArray)
		body.uint(uint64(columns))
		for i := range columns {
			body.value(c.Column(i))
		}
		body.b = append(body.b, tagArrayE)
		body.uint(0)
		body.uint(uint64(columns))
		count++
		if err := c.Next(); err != nil {
			return 0, err
		}
	}
	out := make([]byte, 0, len(body.b)+24)
	head := writer{append(out, tagVersion, version, tagArray)}
	head.uint(uint64(count))
	head.b = append(head.b, body.b...)
	head.b = append(head.b, tagArrayE)
	head.uint(0)
	head.uint(uint64(count))
	w.b = head.b
	return count, nil
}

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) value(v any) {
	switch v := v.(type) {
	case nil:
		w.b = append(w.b, tagNull)
	case int64:
		w.number(v)
	case float64:
		w.b = append(w.b, tagDouble)
		w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(v))
	case string:
		w.b = append(w.b, tagUTF8)
		w.uint(uint64(len(v)))
		w.b = append(w.b, v...)
	case []byte:
		w.b = append(w.b, tagBuffer)
		w.uint(uint64(len(v)))
		w.b = append(w.b, v...)
	}
}

func (w *writer) number(v int64) {
	if v < math.MinInt32 || v > math.MaxInt32 {
		w.value(float64(v))
		return
	}
	w.b = append(w.b, tagInt)
	w.uint(uint64(uint32(v<<1) ^ uint32(v>>31)))
}
