package webapi

import (
	"crypto/rand"

	"github.com/google/uuid"

	"celld/internal/hostcall"
)

// One system call serves many ids.
func init() { uuid.EnableRandPool() }

var randomOps = []hostcall.Op{
	{Name: "random.fill", Sync: func(f hostcall.Frame) error {
		if err := withinHandler(f); err != nil {
			return err
		}
		rand.Read(f.Arg(0).Bytes())
		return nil
	}},
	{Name: "random.uuid", Sync: func(f hostcall.Frame) error {
		if err := withinHandler(f); err != nil {
			return err
		}
		f.SetStr(uuid.NewString())
		return nil
	}},
}

// withinHandler: what is random must not be the same in all instances of a script.
func withinHandler(f hostcall.Frame) error {
	if f.Actor() != nil {
		return nil
	}
	return &hostcall.Throw{Class: "Error", Message: "Disallowed operation called within global scope. Asynchronous I/O (ex: fetch() or connect()), setting a timeout, and generating random values are not allowed within global scope. To fix this error, perform this operation within a handler."}
}
