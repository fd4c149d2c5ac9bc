package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "example.com/foreign/cronoq/v1"
)

// The same as `noop_server.py` says of itself, in Go.
const (
	leases  = 500
	streams = 50
	missing = "unknown pool 'nowhere é ☃'"
	hung    = "hung"
)

func payload() []byte {
	made := make([]byte, 256*20)
	for number := range made {
		made[number] = byte(number)
	}
	return made
}

type desk struct {
	pb.UnimplementedTasksServer
	pb.UnimplementedWorkersServer
	pb.UnimplementedAdminServer

	lock    sync.Mutex
	totals  pb.Totals
	hanging uint64
	stored  map[uint64][]byte
}

// serve prints its port and serves until its input ends.
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxConcurrentStreams(streams), grpc.MaxRecvMsgSize(64<<20))
	shared := &desk{stored: map[uint64][]byte{}}
	pb.RegisterTasksServer(server, shared)
	pb.RegisterWorkersServer(server, shared)
	pb.RegisterAdminServer(server, shared)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}

func (d *desk) Submit(_ context.Context, request *pb.SubmitRequest) (*pb.SubmitResponse, error) {
	if request.Task.Pool == "nowhere" {
		return nil, status.Error(codes.NotFound, missing)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	d.totals.Submitted++
	number := d.totals.Submitted
	// Empty is not nil, which would be no output at all.
	d.stored[number] = append([]byte{}, request.Task.Payload...)
	answer := &pb.SubmitResponse{Id: number}
	if request.Wait {
		answer.Result = d.result(number)
	}
	return answer, nil
}

func (d *desk) result(number uint64) *pb.TaskResult {
	return &pb.TaskResult{
		Id: number, Status: pb.TaskStatus_TASK_STATUS_SUCCEEDED, Output: d.stored[number], OutputAvailable: true,
	}
}

func (d *desk) hang(ctx context.Context) error {
	d.count(1)
	<-ctx.Done()
	d.count(-1)
	return status.FromContextError(ctx.Err()).Err()
}

func (d *desk) count(change int) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.hanging = uint64(int(d.hanging) + change)
	if change < 0 {
		d.totals.Cancelled++
	}
}

func (d *desk) Wait(ctx context.Context, request *pb.WaitRequest) (*pb.TaskResult, error) {
	if request.Task.GetKey() == hung {
		return nil, d.hang(ctx)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.result(request.Task.GetId()), nil
}

func (d *desk) Watch(_ *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.StatusEvent]) error {
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for number := range uint64(100) {
		event := &pb.StatusEvent{Id: number + 1, Pool: "default", Status: pb.TaskStatus_TASK_STATUS_SUCCEEDED}
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	return d.hang(stream.Context())
}

func (d *desk) Work(stream grpc.BidiStreamingServer[pb.WorkerMessage, pb.ServerMessage]) error {
	given, owed := uint64(0), uint32(0)
	for {
		message, err := stream.Recv()
		if err != nil {
			return nil
		}
		if register := message.GetRegister(); register != nil {
			ttl := 30.0
			registered := &pb.Registered{
				WorkerId: 1, LeaseTtlS: &ttl, Slots: register.Slots, ProtocolVersion: 3, MaxMessageBytes: 4 << 20,
			}
			err = stream.Send(&pb.ServerMessage{Msg: &pb.ServerMessage_Registered{Registered: registered}})
			owed = register.Slots
		} else if complete := message.GetComplete(); complete != nil {
			if string(complete.Output) != string(payload()) {
				return status.Error(codes.InvalidArgument, "another output")
			}
			d.lock.Lock()
			d.totals.Succeeded++
			d.lock.Unlock()
			owed = 1
		}
		for ; owed > 0 && given < leases && err == nil; owed-- {
			given++
			lease := &pb.Lease{Lease: given, TaskId: given, Attempt: 1, Payload: payload()}
			err = stream.Send(&pb.ServerMessage{Msg: &pb.ServerMessage_Lease{Lease: lease}})
		}
		owed = 0
		if err != nil {
			return err
		}
	}
}

func (d *desk) Snapshot(context.Context, *pb.Empty) (*pb.SnapshotResponse, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	return &pb.SnapshotResponse{
		Totals:  &pb.Totals{Submitted: d.totals.Submitted, Succeeded: d.totals.Succeeded, Cancelled: d.totals.Cancelled},
		Running: d.hanging,
	}, nil
}
