package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"celld/internal/bucket"
	"celld/internal/bucket/open"
	"celld/internal/id"
	"celld/internal/lease"
	"celld/internal/node"
	"celld/internal/owner"
	"celld/internal/replica"
)

func newCell() *cobra.Command {
	c := &cobra.Command{Use: "cell", Short: "Look at the cells of a bucket"}
	c.AddCommand(newCellList(), newCellShow())
	return c
}

// cellLine is one cell of a listing.
type cellLine struct {
	Cell    id.Cell    `json:"cell"`
	State   string     `json:"state"`
	Session id.Session `json:"session"`
	Epoch   id.Epoch   `json:"epoch"`
	Address string     `json:"address,omitempty"`
}

func newCellList() *cobra.Command {
	var limit int
	var after string
	var asJSON bool
	c := &cobra.Command{
		Use: "list [CLASS]", Short: "List cells and who owns them", Args: cobra.MaximumNArgs(1),
		Example: "  celld cell list --bucket s3://cells\n  celld cell list Room --limit 20 --json --bucket s3://cells",
	}
	settings := settingFlags(c.Flags(), "bucket", "endpoint", "region")
	c.Flags().IntVar(&limit, "limit", 100, "how many at most")
	c.Flags().StringVar(&after, "after", "", "start behind this cell")
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := openStore(cmd, settings)
		if err != nil {
			return err
		}
		defer open.Close(store)
		prefix, start := "cells/", ""
		if len(args) > 0 {
			prefix += id.Cell(args[0] + ":").Segment()
		}
		if after != "" {
			start = "cells/" + id.Cell(after).Segment() + "/\xff"
		}
		lines := []cellLine{}
		for o, err := range store.List(cmd.Context(), prefix, start) {
			if err != nil {
				return err
			}
			name, found := strings.CutSuffix(strings.TrimPrefix(o.Key, "cells/"), "/owner.json")
			if !found {
				continue
			}
			plain, err := id.Unescape(name)
			if err != nil {
				continue
			}
			r, err := owner.Read(cmd.Context(), store, id.Cell(plain))
			if err != nil {
				return err
			}
			lines = append(lines, cellLine{id.Cell(plain), string(r.State), r.Session, r.Epoch, r.Address})
			if len(lines) == limit {
				break
			}
		}
		if asJSON {
			return printJSON(lines)
		}
		for _, l := range lines {
			fmt.Printf("%s  %-8s  epoch %-6d  %s\n", l.Cell, l.State, l.Epoch, l.Session)
		}
		return nil
	}
	return c
}

// cellView is everything the bucket tells of one cell.
type cellView struct {
	cellLine
	OwnerLives bool           `json:"owner_lives"`
	Objects    map[string]int `json:"objects"` // by epoch
	Bytes      int64          `json:"bytes"`
	TXID       id.TXID        `json:"newest_txid"`
}

func newCellShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "show CELL", Short: "Show one cell: its owner and its history in the bucket", Args: cobra.ExactArgs(1),
		Example: "  celld cell show Room:0e1b… --bucket s3://cells"}
	settings := settingFlags(c.Flags(), "bucket", "endpoint", "region")
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cell, err := id.ParseCell(args[0])
		if err != nil {
			return err
		}
		store, err := openStore(cmd, settings)
		if err != nil {
			return err
		}
		defer open.Close(store)
		r, err := owner.Read(cmd.Context(), store, cell)
		if errors.Is(err, bucket.ErrNotFound) {
			return fmt.Errorf("cell %s was never owned in %s", cell, store)
		}
		if err != nil {
			return err
		}
		view := cellView{cellLine: cellLine{cell, string(r.State), r.Session, r.Epoch, r.Address}, Objects: map[string]int{}}
		l, err := lease.NewSessions(store, "cli", nil, nil).Lease(cmd.Context(), r.Session)
		if err != nil {
			return err
		}
		view.OwnerLives = l.Live && r.State == owner.Owned
		for o, err := range store.List(cmd.Context(), replica.Prefix(cell), "") {
			if err != nil {
				return err
			}
			if k, err := replica.ParseKey(cell, o.Key); err == nil {
				view.Objects[k.Epoch.Dir()]++
				view.Bytes += o.Size
				view.TXID = max(view.TXID, k.Max)
			}
		}
		if asJSON {
			return printJSON(view)
		}
		fmt.Printf("%s\n  %s at epoch %d by %s (%s), owner lives: %v\n  newest transaction %d, %d bytes in the bucket\n", cell, view.State, view.Epoch, view.Session, view.Address, view.OwnerLives, view.TXID, view.Bytes)
		for e, n := range view.Objects {
			fmt.Printf("  %s: %d objects\n", e, n)
		}
		return nil
	}
	return c
}

// openStore opens the bucket that a command was given.
func openStore(cmd *cobra.Command, settings func(node.Settings) (node.Settings, error)) (bucket.Store, error) {
	s, err := settings(node.Defaults())
	if err != nil {
		return nil, err
	}
	if s.Bucket == "" {
		return nil, errors.New("no bucket: give --bucket or CELLD_BUCKET")
	}
	return open.Bucket(cmd.Context(), s.Bucket, open.Options{Endpoint: s.Endpoint, Region: s.Region})
}
