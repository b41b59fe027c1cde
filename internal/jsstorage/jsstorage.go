// Package jsstorage is ctx.storage as JavaScript reaches it: the host functions
// behind runtime/src/workers/storage.ts. Meaning and rules are in package storage.
package jsstorage

import (
	"errors"

	"celld/internal/hostcall"
	"celld/internal/storage"
)

// Actor is whose turn it is: a cell, or something without a storage.
type Actor interface {
	Storage() (*storage.Storage, error)
}

// Ops are the host functions.
func Ops() []hostcall.Op {
	var ops []hostcall.Op
	add := func(name string, f func(*storage.Storage, hostcall.Frame) error) {
		ops = append(ops, hostcall.Op{Name: name, Sync: func(fr hostcall.Frame) error {
			a, ok := fr.Actor().(Actor)
			if !ok {
				return errors.New("storage cannot be used outside of a handler")
			}
			s, err := a.Storage()
			if err != nil {
				return err
			}
			return f(s, fr)
		}})
	}
	add("storage.get", get)
	add("storage.put", put)
	add("storage.delete", del)
	add("storage.list", list)
	add("storage.deleteAll", deleteAll)
	add("storage.savepoint", named((*storage.Storage).Savepoint))
	add("storage.begin", named((*storage.Storage).Begin))
	add("storage.release", ended((*storage.Storage).Release))
	add("storage.end", ended((*storage.Storage).End))
	add("storage.getAlarm", getAlarm)
	add("storage.setAlarm", setAlarm)
	add("storage.inTransaction", func(s *storage.Storage, f hostcall.Frame) error { f.SetBool(s.InTransaction()); return nil })
	add("sql.bind", func(s *storage.Storage, f hostcall.Frame) error { s.Bind(values(f, 0)...); return nil })
	add("sql.exec", exec)
	add("sql.next", next)
	add("sql.rest", rest)
	add("sql.close", closeCursor)
	add("sql.size", size)
	return ops
}

func get(s *storage.Storage, f hostcall.Frame) error {
	v, err := s.Get(f.Arg(0).Str())
	if v != nil {
		f.SetClone(v)
	}
	return err
}

func put(s *storage.Storage, f hostcall.Frame) error {
	return s.Put(f.Arg(0).Str(), f.Arg(1).Bytes())
}

func del(s *storage.Storage, f hostcall.Frame) error {
	there, err := s.Delete(f.Arg(0).Str())
	f.SetBool(there)
	return err
}

// list is storage.list(start, after, end, prefix, reverse, limit) -> [key, value, key, value, …].
func list(s *storage.Storage, f hostcall.Frame) error {
	o := storage.ListOptions{Start: f.Arg(0).Str(), After: f.Arg(1).Str(), End: f.Arg(2).Str(), Prefix: f.Arg(3).Str(), Reverse: f.Arg(4).Bool(), Limit: f.Arg(5).Int()}
	var out []hostcall.Value
	err := s.List(o, func(key string, value []byte) bool {
		out = append(out, hostcall.Text(key), hostcall.Cloned(value))
		return true
	})
	if err == nil {
		f.SetTuple(out)
	}
	return err
}

func deleteAll(s *storage.Storage, f hostcall.Frame) error { return s.DeleteAll(f.Arg(0).Bool()) }

func named(begin func(*storage.Storage) (string, error)) func(*storage.Storage, hostcall.Frame) error {
	return func(s *storage.Storage, f hostcall.Frame) error {
		name, err := begin(s)
		f.SetStr(name)
		return err
	}
}

func ended(end func(*storage.Storage, string, bool) error) func(*storage.Storage, hostcall.Frame) error {
	return func(s *storage.Storage, f hostcall.Frame) error { return end(s, f.Arg(0).Str(), f.Arg(1).Bool()) }
}

func getAlarm(s *storage.Storage, f hostcall.Frame) error {
	row, err := s.Alarm()
	if err != nil || row.At.IsZero() || row.Running {
		f.SetNull()
		return err
	}
	f.SetNum(float64(row.At.UnixMilli()))
	return nil
}

// setAlarm is storage.setAlarm(ms), or without a number its removal.
func setAlarm(s *storage.Storage, f hostcall.Frame) error {
	if f.Arg(0).Kind() != hostcall.Number {
		return s.SetAlarm(storage.AlarmRow{})
	}
	return s.SetAlarm(storage.AlarmRow{At: unixMilli(f.Arg(0).Num())})
}

func size(s *storage.Storage, f hostcall.Frame) error {
	n, err := s.Size()
	f.SetNum(float64(n))
	return err
}
