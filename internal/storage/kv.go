package storage

// The key-value API: values are bytes, structured clones where JavaScript wrote
// them. Keys are ordered by their UTF-8 bytes, as SQLite compares text.

const kvTable = "CREATE TABLE IF NOT EXISTS _cf_KV (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"

// exists tells whether a table of ours is there, asking SQLite once.
func (s *Storage) exists(name string, known *tableState) (bool, error) {
	if _, err := s.DB(); err != nil { // opening forgets what was known
		return false, err
	}
	if *known == unknown {
		found, err := s.ownRow("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", nil, name)
		if err != nil {
			return false, err
		}
		*known = absent
		if found {
			*known = present
		}
	}
	return *known == present, nil
}

// create begins the transaction and makes a table of ours if need be.
func (s *Storage) create(name, ddl string, known *tableState) error {
	there, err := s.exists(name, known)
	if err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.wrote = true
	if there {
		return nil
	}
	if err := s.own(ddl); err != nil {
		return err
	}
	*known = present
	return nil
}

// Get reads one value; nil: there is none.
func (s *Storage) Get(key string) (value []byte, err error) {
	if there, err := s.exists("_cf_KV", &s.hasKV); !there {
		return nil, err
	}
	_, err = s.ownRow("SELECT value FROM _cf_KV WHERE key = ?", func(st stmt) {
		value = make([]byte, st.ColumnLen(0))
		st.ColumnBytes(0, value)
	}, key)
	return value, err
}

// Put writes one value.
func (s *Storage) Put(key string, value []byte) error {
	if err := s.create("_cf_KV", kvTable, &s.hasKV); err != nil {
		return err
	}
	return s.own("INSERT INTO _cf_KV VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", key, value)
}

// Delete removes one value and tells whether it was there.
func (s *Storage) Delete(key string) (bool, error) {
	if there, err := s.exists("_cf_KV", &s.hasKV); !there {
		return false, err
	}
	if err := s.begin(); err != nil {
		return false, err
	}
	s.wrote = true
	if err := s.own("DELETE FROM _cf_KV WHERE key = ?", key); err != nil {
		return false, err
	}
	return s.db.Changes() > 0, nil
}

// ListOptions choose what List gives. Empty strings are no bounds.
type ListOptions struct {
	Start   string // first key
	After   string // or: the key before the first
	End     string // the key behind the last
	Prefix  string
	Reverse bool
	Limit   int // 0: all
}

// List calls f for the chosen pairs in order, until it returns false.
func (s *Storage) List(o ListOptions, f func(key string, value []byte) bool) error {
	if there, err := s.exists("_cf_KV", &s.hasKV); !there {
		return err
	}
	query := "SELECT key, value FROM _cf_KV WHERE 1"
	var args []any
	add := func(cond string, v string) {
		if v != "" {
			query += cond
			args = append(args, v)
		}
	}
	add(" AND key >= ?", o.Start)
	add(" AND key > ?", o.After)
	add(" AND key < ?", o.End)
	if o.Prefix != "" {
		add(" AND key >= ?", o.Prefix)
		if end := after(o.Prefix); end != "" {
			query += " AND key < CAST(? AS TEXT)"
			args = append(args, []byte(end))
		}
	}
	query += " ORDER BY key"
	if o.Reverse {
		query += " DESC"
	}
	if o.Limit > 0 {
		query += " LIMIT ?"
		args = append(args, o.Limit)
	}
	p, _, err := s.prepare(query, false)
	if err != nil {
		return err
	}
	p.busy = true
	defer s.stmts.release(p)
	if err := bind(p.stmt, args); err != nil {
		return err
	}
	s.auth.user = false
	for {
		more, err := p.Step()
		if err != nil {
			return sqlError(err)
		}
		if !more {
			return nil
		}
		value := make([]byte, p.ColumnLen(1))
		p.ColumnBytes(1, value)
		if !f(p.ColumnText(0), value) {
			return nil
		}
	}
}

// after is the smallest byte string greater than every string with the prefix; "": there is none.
func after(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}
