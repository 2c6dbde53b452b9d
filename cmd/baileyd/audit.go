package main

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/audit/seal"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

const auditUsage = `Usage: bailey audit show|follow [FLAG...]
       bailey audit verify [FOLDER|BUNDLE] [--key HEX] [--json]
       bailey audit export [--since TIME] [-o FILE]

show and follow print records, verify checks that nothing was changed or
removed (exit status 1: something was), and export writes a bundle that verify
checks on any other machine.
`

// auditFlags are what the subcommands take.
type auditFlags struct {
	since, kind, sandbox string
	denied, json         bool
	last                 int
	key, out             string
}

func auditCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, auditUsage)
		return bailey.ExitBailey
	}
	var f auditFlags
	sub := args[0]
	flags := pflag.NewFlagSet("bailey audit "+sub, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	switch sub {
	case "show", "follow", "verify", "export":
		f.register(flags, sub)
	case "help", "--help", "-h":
		for _, sub := range []string{"show", "verify", "export"} {
			own := pflag.NewFlagSet(sub, pflag.ContinueOnError)
			f.register(own, sub)
			flags.AddFlagSet(own) // but those of the same name
		}
		fmt.Fprint(stdout, auditUsage, "\n", flags.FlagUsages())
		return 0
	default:
		fmt.Fprint(stderr, auditUsage)
		return bailey.ExitBailey
	}
	err := flags.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, auditUsage, "\n", flags.FlagUsages())
		return 0
	}
	code := 0
	switch {
	case err != nil:
		err = auditMisuse(err)
	case flags.NArg() > 1 || flags.NArg() == 1 && sub != "verify":
		err = auditMisuse(fmt.Errorf("%q is one argument too many", flags.Arg(flags.NArg()-1)))
	default:
		var home string
		if home, err = folder.DefaultPath(); err != nil {
			break
		}
		switch sub {
		case "show":
			err = f.show(home, stdout)
		case "follow":
			err = f.follow(ctx, home, stdout)
		case "verify":
			code, err = f.verify(home, flags.Arg(0), stdout)
		case "export":
			err = f.export(home, stdout, stderr)
		}
	}
	if err == nil {
		return code
	}
	var own *bailey.Error
	if !errors.As(err, &own) {
		own = bailey.Errorf(bailey.CodeAudit, sub+" the audit log", "", "%w", err)
	}
	if f.json {
		_ = json.NewEncoder(stderr).Encode(own) // nowhere is left to report to
	} else {
		fmt.Fprintln(stderr, "bailey:", own)
	}
	return bailey.ExitBailey
}

// register gives a subcommand its flags.
func (f *auditFlags) register(flags *pflag.FlagSet, sub string) {
	switch sub {
	case "show", "follow":
		flags.StringVar(&f.since, "since", "", "records since a time (2006-01-02T15:04:05Z) or a duration ago (90m)")
		flags.StringVar(&f.kind, "kind", "", "records of this kind: "+strings.Join(audit.Kinds, ", "))
		flags.StringVar(&f.sandbox, "sandbox", "", "records of this sandbox")
		flags.BoolVar(&f.denied, "denied", false, "what was denied")
		if sub == "show" {
			flags.IntVarP(&f.last, "number", "n", 0, "the last N records (0: all)")
		}
	case "verify":
		flags.StringVar(&f.key, "key", "", "the public key that must have signed")
	case "export":
		flags.StringVar(&f.since, "since", "", "records since a time or a duration ago")
		flags.StringVarP(&f.out, "output", "o", "", "write to this file")
	}
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

func auditMisuse(err error) error {
	return bailey.Errorf(bailey.CodeUsage, "read the audit log", "`bailey audit help` has the flags", "%w", err)
}

// sinceTime reads a time or a duration before now.
func sinceTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, auditMisuse(fmt.Errorf("--since %q is neither a time such as 2006-01-02T15:04:05Z nor a duration such as 90m", s))
}

func auditPath(home string) string { return filepath.Join(home, "audit") }

func (f *auditFlags) verify(home, name string, stdout io.Writer) (int, error) {
	var key ed25519.PublicKey
	if f.key != "" {
		b, err := hex.DecodeString(f.key)
		if err != nil || len(b) != ed25519.PublicKeySize {
			return 0, auditMisuse(errors.New("--key is not 64 hexadecimal digits"))
		}
		key = b
	}
	rep, err := verifyNamed(home, name, key)
	if errors.Is(err, os.ErrNotExist) {
		return 0, bailey.Errorf(bailey.CodeNotFound, "verify the audit log", "", "%w", err)
	}
	if err != nil {
		return 0, err
	}
	code := 0
	if rep.Fault != nil {
		code = 1
	}
	if f.json {
		return code, json.NewEncoder(stdout).Encode(rep)
	}
	return code, writeVerified(stdout, rep)
}

func verifyNamed(home, name string, key ed25519.PublicKey) (*seal.Report, error) {
	if name == "" {
		rep, err := seal.Verify(auditPath(home), filepath.Join(home, "keys"), key)
		if errors.Is(err, os.ErrNotExist) {
			// Nothing was ever written, unless a key says that something was signed.
			if _, kerr := os.Lstat(filepath.Join(home, "keys", "audit.last")); kerr != nil {
				return &seal.Report{}, nil
			}
			return &seal.Report{Fault: &seal.Fault{Seq: 1, Why: "the whole log is missing"}}, nil
		}
		return rep, err
	}
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if fi.IsDir() {
		return seal.Verify(name, "", key)
	}
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return seal.VerifyBundle(in, key)
}

func writeVerified(w io.Writer, rep *seal.Report) error {
	var err error
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	for _, g := range rep.Gaps {
		switch g.Why {
		case audit.GapTorn:
			say("gap at %d: a record of %d bytes that was never finished was cut off", g.Seq, g.Bytes)
		case audit.GapPower:
			say("gap at %d: the machine went down while the log was in use; what was written in the last moments before may be missing", g.Seq)
		default:
			say("gap at %d: records %d to %d are lost", g.Seq, g.From, g.To)
		}
	}
	if rep.Torn > 0 {
		say("the last %d bytes are an unfinished record", rep.Torn)
	}
	if rep.Key != "" {
		say("signed with %s up to record %d", terminal.Printable(rep.Key), rep.Signed)
	}
	if rep.Fault != nil {
		say("BROKEN at record %d: %s", rep.Fault.Seq, terminal.Printable(rep.Fault.Why))
		return err
	}
	note := ""
	if n := rep.Last - rep.Signed; rep.Records > 0 && n > 1 {
		note = ", the last " + strconv.FormatInt(n, 10) + " not signed yet"
	}
	say("ok: %d records%s", rep.Records, note)
	return err
}

func (f *auditFlags) export(home string, stdout, stderr io.Writer) (err error) {
	since, err := sinceTime(f.since, time.Now())
	if err != nil {
		return err
	}
	keys := filepath.Join(home, "keys")
	key, err := seal.OpenKey(keys)
	if err != nil {
		return err
	}
	defer key.Close()
	// What is broken must not be signed anew, as if it had always been so.
	rep, err := seal.Verify(auditPath(home), keys, nil)
	if err != nil {
		return err
	}
	if rep.Fault != nil {
		return bailey.Errorf(bailey.CodeAudit, "export the audit log", "keep the folder audit as it is and find out what happened", "record %d: %s", rep.Fault.Seq, rep.Fault.Why)
	}
	log, err := audit.Open(auditPath(home), audit.Options{Signer: key})
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil { // makes the checkpoint
		return err
	}
	if f.out != "" {
		file, err := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			if cerr := file.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				os.Remove(f.out)
			}
		}()
		stdout = file
	}
	n, err := key.Export(stdout, auditPath(home), since)
	if err == nil && f.out != "" {
		fmt.Fprintf(stderr, "%d records, signed with %x\n", n, key.Public())
	}
	return err
}
