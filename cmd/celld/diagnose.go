package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"celld/internal/bucket/open"
	"celld/internal/diagnose"
)

func newDiagnose() *cobra.Command {
	var asJSON, readOnly bool
	c := &cobra.Command{
		Use:   "diagnose --bucket URL",
		Short: "Check a bucket and the fleet on it",
		Long: "Has the bucket show that it does what a fleet rests on: conditional create and overwrite, reading back, exact ranges.\n" +
			"Then lists the sessions and asks each live one to answer at its address. Exit code 1 if something fails.",
		Example: "  celld diagnose --bucket s3://cells --endpoint http://127.0.0.1:7070",
		Args:    cobra.NoArgs,
	}
	settings := settingFlags(c.Flags(), "bucket", "endpoint", "region")
	c.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	c.Flags().BoolVar(&readOnly, "read-only", false, "leave out the probe that writes to the bucket")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := openStore(cmd, settings)
		if err != nil {
			return err
		}
		defer open.Close(store)
		findings := diagnose.Run(cmd.Context(), store, readOnly)
		if asJSON {
			if err := printJSON(findings); err != nil {
				return err
			}
		} else {
			for _, f := range findings {
				fmt.Printf("%-4s %s: %s (%d ms)\n", f.Verdict, f.Check, f.Detail, f.TookMS)
			}
		}
		for _, f := range findings {
			if f.Verdict == diagnose.Fail {
				return exitCode(1)
			}
		}
		return nil
	}
	return c
}

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
