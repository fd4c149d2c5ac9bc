// A client in Go, as its users write it, and a server: grpc-go and generated stubs.
//
//	foreign [flags] SCENARIO ADDRESS
//	foreign serve
//
// Prints what it saw as one JSON object; exits with 1 and a sentence when something went otherwise than it can say there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"

	pb "example.com/foreign/cronoq/v1"
)

type report map[string]any

type options struct {
	count, size, slots int
	idle               time.Duration
}

type scenario func(context.Context, *grpc.ClientConn, options) (report, error)

var scenarios = map[string]scenario{"unary": unary, "watch": watch, "work": work, "load": load, "idle": idle}

var errorf = fmt.Errorf

func main() {
	var chosen options
	flag.IntVar(&chosen.count, "count", 1, "tasks")
	flag.IntVar(&chosen.size, "size", 0, "bytes of a payload")
	flag.IntVar(&chosen.slots, "slots", 1, "slots of the worker, and callers")
	flag.DurationVar(&chosen.idle, "idle", 0, "how long to keep quiet")
	compress := flag.Bool("gzip", false, "compress what is sent")
	ca := flag.String("ca", "", "the authority to trust; without it the connection is cleartext")
	flag.Parse()
	if flag.Arg(0) == "serve" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	found, err := run(scenarios[flag.Arg(0)], flag.Arg(1), *ca, *compress, chosen)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(play scenario, address, ca string, compress bool, chosen options) (report, error) {
	transport := insecure.NewCredentials()
	if ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(ca, ""); err != nil {
			return nil, err
		}
	}
	calls := []grpc.CallOption{grpc.MaxCallRecvMsgSize(64 << 20)}
	if compress {
		calls = append(calls, grpc.UseCompressor(gzip.Name))
	}
	conn, err := grpc.NewClient(
		address,
		grpc.WithTransportCredentials(transport),
		// The shortest time that grpc-go takes, also while no call is open: as much as a user can ask for.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(calls...),
	)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return play(ctx, conn, chosen)
}

// idle: a call, long quiet in which only keepalive pings go out, another call on the same connection.
func idle(ctx context.Context, conn *grpc.ClientConn, chosen options) (report, error) {
	admin := pb.NewAdminClient(conn)
	if _, err := admin.Snapshot(ctx, &pb.Empty{}); err != nil {
		return nil, err
	}
	quiet, cancel := context.WithTimeout(ctx, chosen.idle)
	defer cancel()
	lost := conn.WaitForStateChange(quiet, connectivity.Ready)
	_, err := admin.Snapshot(ctx, &pb.Empty{})
	return report{"lost": lost}, err
}
