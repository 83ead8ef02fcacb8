// Parses metrics, alert rules and PromQL expressions as Prometheus itself does.
//
//	promcheck RULES.yml METRICS < expressions
//
// Standard input has one expression per line. Prints each problem, and exits with 1 if there is one.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	problems := 0
	report := func(what string, err error) {
		if err != nil {
			fmt.Printf("%s: %v\n", what, err)
			problems++
		}
	}
	_, errs := rulefmt.ParseFile(os.Args[1], false)
	for _, err := range errs {
		report("rules", err)
	}
	metrics, err := os.Open(os.Args[2])
	report("metrics", err)
	var text expfmt.TextParser
	families, err := text.TextToMetricFamilies(metrics)
	report("metrics", err)
	fmt.Printf("%d families\n", len(families))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		_, err := parser.ParseExpr(lines.Text())
		report(lines.Text(), err)
	}
	if problems > 0 {
		os.Exit(1)
	}
}
