package databases

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/zopday/provisioner/internal/sim"
)

// redis is a Redis server.
type redis struct {
	home

	who      *syscall.Credential
	port     int    // speaks TLS
	password string // of this package
	process  *process
}

// forbidden are the commands that the clouds keep from their users, after any rules.
// https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/SupportedCommands.html
var forbidden = []string{
	"-acl|deluser", "-acl|load", "-acl|save", "-acl|setuser", "-bgrewriteaof", "-bgsave", "-config", "-debug", "-failover",
	"-migrate", "-module", "-psync", "-replicaof", "-save", "-shutdown", "-slaveof", "-sync",
}

// tlsHandshake is the first byte of a client that speaks TLS.
const tlsHandshake = 0x16

func (r *redis) speaksFirst() bool { return false }

// address is the TLS port, also for those who do not speak it where TLS is required; elsewhere
// they get the socket, which is the same server.
func (r *redis) address(requireTLS bool, first byte) (string, string) {
	if !requireTLS && first != tlsHandshake {
		return "unix", r.socket()
	}
	return "tcp", "127.0.0.1:" + strconv.Itoa(r.port)
}

func (r *redis) start(ctx context.Context, _ sim.DatabaseServer) (*process, error) {
	var err error
	if r.who, err = account("redis"); err != nil {
		return nil, err
	}
	if err := r.prepare(r.who); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.data, 0o700); err != nil {
		return nil, err
	}
	if err := errors.Join(giveTo(r.who, r.data), r.writeUsers()); err != nil {
		return nil, err
	}
	for range 3 { // somebody else may take the free port before the server does
		if r.process, err = r.launch(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return r.process, err
}

func (r *redis) aclFile() string { return filepath.Join(r.data, "users.acl") }

// writeUsers puts this package among the users that were kept, with a password of this start.
func (r *redis) writeUsers() error {
	var err error
	if r.password, err = randomWord(); err != nil {
		return err
	}
	kept, err := os.ReadFile(r.aclFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lines := []string{fmt.Sprintf("user %s on #%s ~* &* +@all", superuser, hash(r.password))}
	if err != nil {
		lines = append(lines, "user default off resetpass")
	}
	for line := range strings.Lines(string(kept)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "user "+superuser+" ") {
			lines = append(lines, line)
		}
	}
	return writeFor(r.who, r.aclFile(), []byte(strings.Join(lines, "\n")+"\n"))
}

func hash(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

func (r *redis) launch(ctx context.Context) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r.port = port
	kept := "no"
	if r.keep {
		kept = "yes"
	}
	in := func(file string) string { return filepath.Join(r.home.run, file) }
	conf := fmt.Sprintf(`bind 127.0.0.1
port 0
tls-port %d
tls-cert-file %s
tls-key-file %s
tls-ca-cert-file %s
tls-auth-clients no
unixsocket %s
unixsocketperm 700
dir %s
aclfile %s
appendonly %s
save ""
maxmemory 32mb
maxmemory-policy allkeys-lru
daemonize no
protected-mode no
`, port, in(certFile), in(keyFile), in("ca.pem"), r.socket(), r.data, r.aclFile(), kept)
	if err := writeFor(r.who, in("redis.conf"), []byte(conf)); err != nil {
		return nil, err
	}
	process, err := startProcess(command(context.Background(), r.who, r.data, r.binary, in("redis.conf")), syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return process, process.until(ctx, func(ctx context.Context) error { return r.do(ctx, "PING") })
}

func (r *redis) apply(ctx context.Context, spec sim.DatabaseServer) error {
	if !slices.Equal(r.home.names, spec.Names) {
		err := r.certify(r.who, spec.Names)
		if err == nil {
			err = r.do(ctx, "CONFIG", "SET", "tls-cert-file", filepath.Join(r.home.run, certFile), "tls-key-file", filepath.Join(r.home.run, keyFile))
		}
		if err != nil {
			return err
		}
	}
	rules := []string{"off", "resetpass"}
	switch {
	case spec.OpenDefault:
		rules = []string{"reset", "on", "nopass", "~*", "&*", "+@all"}
	case spec.Password != "":
		rules = []string{"reset", "on", ">" + spec.Password, "~*", "&*", "+@all"}
	}
	return r.setRules(ctx, "default", rules)
}

func (r *redis) setRules(ctx context.Context, user string, rules []string) error {
	args := append([]string{"ACL", "SETUSER", user}, rules...)
	if err := r.do(ctx, append(args, forbidden...)...); err != nil {
		return err
	}
	return r.do(ctx, "ACL", "SAVE")
}

func (r *redis) setUser(ctx context.Context, _ sim.DatabaseServer, u sim.DatabaseUser) error {
	if u.Name == superuser {
		return fmt.Errorf("the name %s is taken", superuser)
	}
	rules := []string{"on"}
	if u.Password != "" {
		rules = append(rules, "resetpass", ">"+u.Password)
	}
	if len(u.Roles) > 0 {
		rules = append(rules, "resetkeys", "resetchannels", "-@all")
		for _, role := range u.Roles {
			rules = append(rules, strings.Fields(role)...)
		}
	}
	return r.setRules(ctx, u.Name, rules)
}

func (r *redis) dropUser(ctx context.Context, _ sim.DatabaseServer, name string) error {
	if name == "default" || name == superuser {
		return fmt.Errorf("the user %s cannot be dropped", name)
	}
	if err := r.do(ctx, "ACL", "DELUSER", name); err != nil { // its connections end with it
		return err
	}
	return r.do(ctx, "ACL", "SAVE")
}

var errNoSQL = errors.New("a cache has no logical databases and takes no statements")

func (r *redis) createDatabase(context.Context, sim.DatabaseServer, string) error { return errNoSQL }
func (r *redis) dropDatabase(context.Context, string) error                       { return errNoSQL }
func (r *redis) query(context.Context, string, string, string, string) ([]string, [][]string, error) {
	return nil, nil, errNoSQL
}

func (r *redis) names(ctx context.Context) (databases, users []string, err error) {
	answer, err := r.ask(ctx, "ACL", "USERS")
	users = slices.DeleteFunc(answer, func(name string) bool { return name == superuser })
	return nil, users, err
}

func (r *redis) do(ctx context.Context, args ...string) error {
	_, err := r.ask(ctx, args...)
	return err
}

// ask sends one command by the socket, as this package.
func (r *redis) ask(ctx context.Context, args ...string) ([]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	in := bufio.NewReader(conn)
	var answer []string
	for _, words := range [][]string{{"AUTH", superuser, r.password}, args} {
		if _, err := io.WriteString(conn, encode(words)); err != nil {
			return nil, err
		}
		if answer, err = decode(in); err != nil {
			return nil, fmt.Errorf("%s: %w", words[0], err)
		}
	}
	return answer, nil
}

// encode is a command as Redis reads it. https://redis.io/docs/latest/develop/reference/protocol-spec/
func encode(words []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// decode reads an answer: one value, or an array of them.
func decode(in *bufio.Reader) ([]string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, io.ErrUnexpectedEOF
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '-':
		return nil, errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		buf := make([]byte, n+2)
		_, err = io.ReadFull(in, buf)
		return []string{string(buf[:max(0, len(buf)-2)])}, err
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return nil, err
		}
		var all []string
		for range n {
			one, err := decode(in)
			if err != nil {
				return nil, err
			}
			all = append(all, one...)
		}
		return all, nil
	}
	return []string{rest}, nil
}
