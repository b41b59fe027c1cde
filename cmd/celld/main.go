// Command celld runs Workers and Durable Objects on machines you own.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

// exitCode is an error that asks for a particular exit code and has been told already.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, failure(os.Stderr, err))
	return 1
}

func newRoot() *cobra.Command {
	serve := newServe()
	root := &cobra.Command{
		Use:   "celld",
		Short: "Run Workers and Durable Objects on machines you own",
		Long: "celld runs Cloudflare-Workers-style JavaScript and its Durable Objects on your own machines.\n" +
			"The nodes of a fleet share a bucket and nothing else.\n\n" +
			"  celld dev              run a project on this machine, adopting every change\n" +
			"  celld deploy --bucket  put a project into a bucket\n" +
			"  celld serve --bucket   run a node of a fleet (also: bare celld --bucket …)",
		Version:           version(),
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		RunE:              serve.RunE,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetVersionTemplate("celld {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w\n  try: %s --help", err, c.CommandPath())
	})
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, newDeploy(), newDev(), newDiagnose(), newCell())
	return root
}
