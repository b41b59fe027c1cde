package storage

import (
	"strings"

	driver "zombiezen.com/go/sqlite"

	"celld/internal/sqlite"
)

type stmt = *driver.Stmt

// maxStatements bounds the prepared statements that one open database keeps;
// beyond it the one that was used longest ago goes.
const maxStatements = 64

// prepared is one statement with what the authorizer noted of it.
type prepared struct {
	stmt
	text    string // the piece of SQL it was made from
	write   bool
	deletes bool
	weight  int // rows written for each changed row: itself and its index entries
	columns []string
	packed  string // columns as JavaScript gets them
	busy    bool   // a cursor holds it
	used    uint64
}

// statements is the cache of one open database.
type statements struct {
	byText map[string]*prepared
	clock  uint64
}

func (c *statements) get(text string) *prepared {
	p := c.byText[text]
	if p == nil || p.busy {
		return nil
	}
	c.clock++
	p.used = c.clock
	return p
}

func (c *statements) put(p *prepared) {
	if c.byText == nil {
		c.byText = map[string]*prepared{}
	}
	if old := c.byText[p.text]; old != nil {
		return // somebody else's is there, and perhaps in use; p goes when its cursor ends
	}
	if len(c.byText) >= maxStatements {
		c.evict()
	}
	c.clock++
	p.used = c.clock
	c.byText[p.text] = p
}

func (c *statements) evict() {
	var oldest *prepared
	for _, p := range c.byText {
		if !p.busy && (oldest == nil || p.used < oldest.used) {
			oldest = p
		}
	}
	if oldest != nil {
		delete(c.byText, oldest.text)
		oldest.Finalize()
	}
}

// release gives a statement back that a cursor has finished with.
func (c *statements) release(p *prepared) {
	p.busy = false
	p.Reset()
	p.ClearBindings()
	if c.byText[p.text] != p {
		p.Finalize()
	}
}

func (c *statements) close() {
	for _, p := range c.byText {
		if !p.busy {
			p.Finalize()
		}
	}
	c.byText = nil
}

// prepare makes the first statement of text; rest is what stands behind it. A
// nil statement means that there was only white space or a comment.
func (s *Storage) prepare(text string, user bool) (p *prepared, rest string, err error) {
	db, err := s.DB()
	if err != nil {
		return nil, "", err
	}
	if p := s.stmts.get(text); p != nil {
		return p, "", nil
	}
	s.auth.reset(user)
	st, trailing, err := db.PrepareTransient(text)
	if err != nil {
		if s.auth.triedTxn {
			return nil, "", &Error{Message: useTransaction}
		}
		return nil, "", sqlError(err)
	}
	rest = text[len(text)-trailing:]
	if st.ColumnCount() == 0 && !s.auth.writes && !s.auth.selects && blank(text[:len(text)-trailing]) {
		st.Finalize()
		return nil, rest, nil
	}
	p = &prepared{stmt: st, text: text[:len(text)-trailing], write: s.auth.writes || !s.auth.selects, deletes: s.auth.deletes, weight: 1}
	for i := range st.ColumnCount() {
		p.columns = append(p.columns, sqlite.ColumnName(st, i))
	}
	p.packed = strings.Join(p.columns, "\n")
	if p.write && len(s.auth.tables) > 0 && !p.deletes {
		p.weight += s.indexes(s.auth.tables[0])
	}
	if strings.TrimSpace(rest) == "" {
		p.text = text
		rest = ""
		s.stmts.put(p)
	}
	return p, rest, nil
}

// indexes counts the indexes of a table, for the counter of rows written.
func (s *Storage) indexes(table string) (n int) {
	saved := s.auth
	s.ownRow("SELECT count(*) FROM sqlite_master WHERE type = 'index' AND tbl_name = ?", func(st stmt) { n = st.ColumnInt(0) }, table)
	s.auth = saved
	return n
}

// blank: nothing but white space, semicolons and comments.
func blank(s string) bool {
	for {
		s = strings.TrimLeft(s, " \t\r\n;")
		switch {
		case s == "":
			return true
		case strings.HasPrefix(s, "--"):
			_, after, ok := strings.Cut(s, "\n")
			if !ok {
				return true
			}
			s = after
		case strings.HasPrefix(s, "/*"):
			_, after, ok := strings.Cut(s, "*/")
			if !ok {
				return true
			}
			s = after
		default:
			return false
		}
	}
}

// ownRow runs a statement of ours; row sees its first row if there is one.
func (s *Storage) ownRow(query string, row func(stmt), args ...any) (found bool, err error) {
	p, _, err := s.prepare(query, false)
	if err != nil {
		return false, err
	}
	p.busy = true
	defer s.stmts.release(p)
	if err := bind(p.stmt, args); err != nil {
		return false, err
	}
	s.auth.user = false // SQLite may prepare a statement again while it runs
	for {
		more, err := p.Step()
		if err != nil {
			return found, sqlError(err)
		}
		if !more {
			return found, nil
		}
		if !found && row != nil {
			row(p.stmt)
		}
		found = true
	}
}
