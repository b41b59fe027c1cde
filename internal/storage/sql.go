package storage

import (
	"fmt"

	driver "zombiezen.com/go/sqlite"

	"celld/internal/sqlite"
)

// Error is a failure of SQL as a user is told it.
type Error struct {
	Message string
	Full    bool // the disk is full
}

func (e *Error) Error() string { return e.Message }

func sqlError(err error) error {
	return &Error{Message: sqlite.Message(err), Full: sqlite.Full(err)}
}

// Value types that cross: nil, int64, float64, string, []byte.

func bind(st stmt, args []any) error {
	for i, a := range args {
		switch v := a.(type) {
		case nil:
			st.BindNull(i + 1)
		case float64:
			st.BindFloat(i+1, v)
		case int64:
			st.BindInt64(i+1, v)
		case int:
			st.BindInt64(i+1, int64(v))
		case string:
			st.BindText(i+1, v)
		case []byte:
			st.BindBytes(i+1, v)
		case bool:
			st.BindBool(i+1, v)
		default:
			return fmt.Errorf("a value of type %T cannot be bound", a)
		}
	}
	return nil
}

// Cursor is the rows of one statement, read as far as its user went.
type Cursor struct {
	s       *Storage
	id      uint32
	p       *prepared
	write   bool
	done    bool
	row     bool // a row stands ready
	before  int
	read    int64
	written int64
}

// Exec runs every statement of sql; binds are for the last one, whose rows the
// cursor gives. A statement that gives no rows has run to its end.
func (s *Storage) Exec(sql string, binds ...any) (*Cursor, error) {
	if len(sql) > sqlite.MaxSQL {
		return nil, &Error{Message: fmt.Sprintf("the SQL text of %d bytes is longer than %d: SQLITE_TOOBIG", len(sql), sqlite.MaxSQL)}
	}
	rest, ran := sql, false
	for {
		p, next, err := s.prepare(rest, true)
		if err != nil {
			return nil, err
		}
		last := blank(next)
		switch {
		case p == nil && last && !ran:
			return nil, &Error{Message: "SQL code did not contain a statement."}
		case p == nil && last:
			return &Cursor{done: true, s: s}, nil
		case p == nil:
			rest = next
			continue
		case !last && p.BindParamCount() > 0:
			s.drop(p)
			return nil, &Error{Message: "When executing multiple SQL statements in a single call, only the last statement can have parameters."}
		case last && p.BindParamCount() != len(binds):
			s.drop(p)
			return nil, &Error{Message: "Wrong number of parameter bindings for SQL query."}
		}
		ran = true
		if !last {
			c, err := s.open(p, nil)
			if err == nil {
				err = c.drain()
			}
			if err != nil {
				return nil, err
			}
			rest = next
			continue
		}
		return s.open(p, binds)
	}
}

// drop lets go of a statement that will not run.
func (s *Storage) drop(p *prepared) {
	p.busy = true
	s.stmts.release(p)
}

// open starts a statement and makes its first step.
func (s *Storage) open(p *prepared, binds []any) (*Cursor, error) {
	p.busy = true
	if p.write {
		if err := s.begin(); err != nil {
			s.stmts.release(p)
			return nil, err
		}
		s.wrote = true
	}
	if err := bind(p.stmt, binds); err != nil {
		s.stmts.release(p)
		return nil, err
	}
	s.next++
	c := &Cursor{s: s, id: s.next, p: p, write: p.write}
	if s.cursors == nil {
		s.cursors = map[uint32]*Cursor{}
	}
	s.cursors[c.id] = c
	if err := c.step(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cursor) step() error {
	c.s.auth.user = true // SQLite may prepare a statement again while it runs
	more, err := c.p.Step()
	if err != nil {
		c.finish()
		return sqlError(err)
	}
	c.row = more
	if more {
		c.read++
		return nil
	}
	if c.write {
		changes := int64(c.s.db.Changes())
		if isDML(c.p) {
			c.written = changes * int64(c.p.weight)
			if !c.p.deletes {
				c.read = changes
			}
		}
	}
	c.finish()
	return nil
}

// isDML: SQLite counts changes of INSERT, UPDATE and DELETE only, and leaves the count alone elsewhere.
func isDML(p *prepared) bool {
	return p.deletes || p.weight > 1 || len(p.columns) > 0 || hasVerb(p.text)
}

func hasVerb(text string) bool {
	for _, v := range []string{"INSERT", "UPDATE", "REPLACE", "WITH", "insert", "update", "replace", "with", "Insert", "Update"} {
		if len(text) > len(v) && text[:len(v)] == v {
			return true
		}
	}
	return false
}

func (c *Cursor) drain() error {
	for !c.done {
		if err := c.step(); err != nil {
			return err
		}
	}
	return nil
}

// finish gives the statement back.
func (c *Cursor) finish() {
	if c.done {
		return
	}
	c.done, c.row = true, false
	c.s.stmts.release(c.p)
	delete(c.s.cursors, c.id)
}

// Close ends a cursor early. A write that was not finished is rolled back by
// SQLite only with its transaction, so it counts as finished.
func (c *Cursor) Close() { c.finish() }

// ID names the cursor among those of its storage.
func (c *Cursor) ID() uint32 { return c.id }

// Cursor finds an open cursor; nil: it has ended.
func (s *Storage) Cursor(n uint32) *Cursor { return s.cursors[n] }

// Columns are the names of the columns.
func (c *Cursor) Columns() []string {
	if c.p == nil {
		return nil
	}
	return c.p.columns
}

// PackedColumns are the same in one string.
func (c *Cursor) PackedColumns() string {
	if c.p == nil {
		return ""
	}
	return c.p.packed
}

// HasRow tells whether a row stands ready to be read.
func (c *Cursor) HasRow() bool { return c.row }

// Next steps to the next row.
func (c *Cursor) Next() error {
	if c.done {
		return nil
	}
	return c.step()
}

// Done: there are no more rows.
func (c *Cursor) Done() bool { return c.done }

// RowsRead and RowsWritten are the platform's counters, as near as SQLite tells them.
func (c *Cursor) RowsRead() int64    { return c.read }
func (c *Cursor) RowsWritten() int64 { return c.written }

// Column is a value of the row: nil, int64, float64, string or []byte.
func (c *Cursor) Column(i int) any {
	switch c.p.ColumnType(i) {
	case driver.TypeInteger:
		return c.p.ColumnInt64(i)
	case driver.TypeFloat:
		return c.p.ColumnFloat(i)
	case driver.TypeText:
		return c.p.ColumnText(i)
	case driver.TypeBlob:
		b := make([]byte, c.p.ColumnLen(i))
		c.p.ColumnBytes(i, b)
		return b
	}
	return nil
}

// All reads the rest of the rows.
func (c *Cursor) All() (rows [][]any, err error) {
	for c.row {
		row := make([]any, len(c.p.columns))
		for i := range row {
			row[i] = c.Column(i)
		}
		rows = append(rows, row)
		if err := c.step(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Bind keeps values for the next Exec through Bound, for callers that cannot
// pass all at once.
func (s *Storage) Bind(values ...any) { s.binds = append(s.binds, values...) }

// Bound is what Bind kept, and then last; it forgets them.
func (s *Storage) Bound(last []any) []any {
	if len(s.binds) == 0 {
		return last
	}
	all := append(s.binds, last...)
	s.binds = nil
	return all
}
