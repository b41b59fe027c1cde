// Package storage is ctx.storage on one SQLite database: SQL with its rules
// and limits, the key-value API, transactions, the alarm row.
package storage

// Storage is the storage of one resident cell.
type Storage struct{}
