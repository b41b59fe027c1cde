package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"celld/internal/bucket/open"
	"celld/internal/deploy"
	"celld/internal/deploy/engine"
	"celld/internal/node"
	"celld/internal/worker"
	"celld/internal/wrangler"
)

func newDeploy() *cobra.Command {
	var env string
	var configs []string
	var dryRun bool
	c := &cobra.Command{
		Use:   "deploy [DIR|CONFIG] --bucket URL",
		Short: "Put a project into a bucket",
		Long: "Bundles the project, loads it once to see that it starts, uploads it, and points the fleet at it. Nodes adopt it\n" +
			"in place. A deployment that does not start is refused, and the one before it stays.",
		Example: "  celld deploy examples/counter --bucket file:///var/lib/celld/bucket\n  celld deploy -c web/wrangler.jsonc -c jobs/wrangler.jsonc --bucket s3://cells",
		Args:    cobra.MaximumNArgs(1),
	}
	settings := settingFlags(c.Flags(), "bucket", "endpoint", "region")
	c.Flags().StringVarP(&env, "env", "e", "", "environment of the configuration")
	c.Flags().StringArrayVarP(&configs, "config", "c", nil, "configuration file; give several to deploy several Workers together")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "build and check, upload nothing")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := settings(node.Defaults())
		if err != nil {
			return err
		}
		if s.Bucket == "" && !dryRun {
			return fmt.Errorf("no bucket: give --bucket or CELLD_BUCKET")
		}
		cfgs, err := loadConfigs(projects(args, configs), env)
		if err != nil {
			return err
		}
		built, err := deploy.Build(cmd.Context(), cfgs, deploy.Options{Output: os.Stderr})
		if built != nil {
			for _, n := range built.Notices {
				fmt.Fprintln(os.Stderr, "notice:", n)
			}
		}
		if err != nil {
			return err
		}
		rt, err := worker.NewRuntime()
		if err != nil {
			return err
		}
		check := engine.Checker{Runtime: rt, Options: worker.Options{HeapLimit: s.HeapLimit, CPULimit: s.CPULimit}}
		if dryRun {
			if err := built.Deployment.Check(cmd.Context(), check); err != nil {
				return err
			}
			fmt.Println(built.Version)
			return nil
		}
		store, err := open.Bucket(cmd.Context(), s.Bucket, open.Options{Endpoint: s.Endpoint, Region: s.Region})
		if err != nil {
			return err
		}
		defer open.Close(store)
		if _, err := deploy.Publish(cmd.Context(), store, built.Deployment, check); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "deployed to %s; nodes adopt it within CELLD_DEPLOY_POLL_S\n", store)
		fmt.Println(built.Version)
		return nil
	}
	return c
}

// projects are the configurations that a command was given, by argument or by -c.
func projects(args, configs []string) []string {
	if len(args) > 0 {
		return append(args, configs...)
	}
	if len(configs) > 0 {
		return configs
	}
	return []string{"."}
}

func loadConfigs(paths []string, env string) ([]*wrangler.Config, error) {
	var out []*wrangler.Config
	for _, p := range paths {
		cfg, err := wrangler.Load(p, wrangler.Options{Env: env})
		if err != nil {
			return nil, err
		}
		out = append(out, cfg)
	}
	return out, nil
}
