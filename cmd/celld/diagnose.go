package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"celld/internal/bucket"
	"celld/internal/bucket/open"
	"celld/internal/node"
)

// finding is one line of a diagnosis.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	TookMS int64  `json:"took_ms"`
}

func newDiagnose() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "diagnose --bucket URL",
		Short:   "Check that a bucket can hold a fleet",
		Long:    "Has the bucket show that it does what a fleet rests on: conditional create and overwrite, reading back, exact ranges.\nExit code 0 if everything is well.",
		Example: "  celld diagnose --bucket s3://cells --endpoint http://127.0.0.1:7070",
		Args:    cobra.NoArgs,
	}
	settings := settingFlags(c.Flags(), "bucket", "endpoint", "region")
	c.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings(node.Defaults())
		if err != nil {
			return err
		}
		if s.Bucket == "" {
			return errors.New("no bucket: give --bucket or CELLD_BUCKET")
		}
		store, err := open.Bucket(cmd.Context(), s.Bucket, open.Options{Endpoint: s.Endpoint, Region: s.Region})
		if err != nil {
			return err
		}
		defer open.Close(store)
		began := time.Now()
		f := finding{Check: "bucket contract", OK: true, Detail: store.String() + ": conditional create and overwrite, read-after-write and exact ranges hold"}
		if err := bucket.Probe(cmd.Context(), store); err != nil {
			f.OK, f.Detail = false, err.Error()
		}
		f.TookMS = time.Since(began).Milliseconds()
		findings := []finding{f}
		if asJSON {
			enc := json.NewEncoder(os.Stdout)
			enc.SetIndent("", "  ")
			enc.Encode(findings)
		} else {
			for _, f := range findings {
				mark := "ok  "
				if !f.OK {
					mark = "FAIL"
				}
				fmt.Printf("%s %s: %s (%d ms)\n", mark, f.Check, f.Detail, f.TookMS)
			}
		}
		for _, f := range findings {
			if !f.OK {
				return exitCode(1)
			}
		}
		return nil
	}
	return c
}
