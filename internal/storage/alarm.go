package storage

import "time"

// AlarmRow is the alarm of a cell. A zero At means that there is none.
type AlarmRow struct {
	At      time.Time
	Retry   int // failures so far
	Counted int // those that were the handler's
	// Running: its handler runs. Until that succeeds the row stays, so that a
	// crash fires it again; meanwhile the user sees no alarm.
	Running bool
}

const alarmTable = "CREATE TABLE IF NOT EXISTS _cf_ALARM (id INTEGER PRIMARY KEY CHECK (id = 1), at_ms INTEGER NOT NULL, retry INTEGER NOT NULL, counted INTEGER NOT NULL, running INTEGER NOT NULL)"

// Alarm reads the row.
func (s *Storage) Alarm() (row AlarmRow, err error) {
	if there, err := s.exists("_cf_ALARM", &s.hasOwn); !there {
		return AlarmRow{}, err
	}
	_, err = s.ownRow("SELECT at_ms, retry, counted, running FROM _cf_ALARM", func(st stmt) {
		row = AlarmRow{time.UnixMilli(st.ColumnInt64(0)), st.ColumnInt(1), st.ColumnInt(2), st.ColumnBool(3)}
	})
	return row, err
}

// SetAlarm writes the row, or removes it if row.At is zero.
func (s *Storage) SetAlarm(row AlarmRow) error {
	if row.At.IsZero() {
		if there, err := s.exists("_cf_ALARM", &s.hasOwn); !there {
			return err
		}
	}
	if err := s.create("_cf_ALARM", alarmTable, &s.hasOwn); err != nil {
		return err
	}
	s.alarmSet = true
	if row.At.IsZero() {
		return s.own("DELETE FROM _cf_ALARM")
	}
	return s.own("INSERT INTO _cf_ALARM VALUES (1, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms, retry = excluded.retry, counted = excluded.counted, running = excluded.running",
		row.At.UnixMilli(), row.Retry, row.Counted, row.Running)
}

// AlarmTouched tells whether the alarm was set or deleted since it was asked last.
func (s *Storage) AlarmTouched() bool {
	t := s.alarmSet
	s.alarmSet = false
	return t
}
