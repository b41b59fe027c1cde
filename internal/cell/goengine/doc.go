// Package goengine runs cells whose handlers are Go functions. It is a
// cell.Engine like the one that runs JavaScript, and keeps the same rules: turns
// one at a time, outputs through the gate in order, nothing after Close. Tests
// and the simulator drive the protocol with it.
//
// A handler is plain blocking Go. It touches storage inside Cell.Turn, and lets
// things out through the gate: its result, the chunks of a Stream, a Call of
// another service, or anything at all after Cell.Gate.
//
//	counter := goengine.Class{
//		Fetch: func(ctx context.Context, c *goengine.Cell, r *call.Request) (*call.Response, error) {
//			var n int
//			err := c.Turn(func(st *storage.Storage) (err error) {
//				n, err = increment(st)
//				return err
//			})
//			return goengine.Text(strconv.Itoa(n)), err
//		},
//	}
package goengine
