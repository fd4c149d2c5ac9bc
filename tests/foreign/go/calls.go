package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "example.com/foreign/cronoq/v1"
)

func ref(id uint64) *pb.TaskRef {
	return &pb.TaskRef{Target: &pb.TaskRef_Id{Id: id}}
}

func seconds(value float64) *float64 {
	return &value
}

// outcome is the status of a call, as tests read it.
func outcome(err error) []string {
	found := status.Convert(err)
	return []string{found.Code().String(), found.Message()}
}

// unary: what calls give back, and each way in which one can end.
func unary(ctx context.Context, conn *grpc.ClientConn, _ options) (report, error) {
	tasks := pb.NewTasksClient(conn)
	first, err := tasks.Submit(ctx, &pb.SubmitRequest{Task: &pb.TaskSpec{Key: "go", Payload: []byte("x")}})
	if err != nil {
		return nil, err
	}
	again, err := tasks.Submit(ctx, &pb.SubmitRequest{Task: &pb.TaskSpec{Key: "go"}})
	if err != nil {
		return nil, err
	}
	info, err := tasks.Get(ctx, &pb.GetRequest{Task: ref(first.Id)})
	if err != nil {
		return nil, err
	}
	found := report{
		"same":      first.Id == again.Id && info.Id == first.Id,
		"duplicate": []bool{first.Duplicate, again.Duplicate},
		"key":       info.Key,
	}
	_, err = tasks.Get(ctx, &pb.GetRequest{Task: ref(1 << 40)})
	found["missing"] = outcome(err)
	_, err = tasks.Submit(ctx, &pb.SubmitRequest{Task: &pb.TaskSpec{Pool: "nowhere é ☃"}})
	found["pool"] = outcome(err)

	var trailer metadata.MD
	waiting := &pb.SubmitRequest{Task: &pb.TaskSpec{}, Wait: true, WaitTimeoutS: seconds(0.05)}
	_, err = tasks.Submit(ctx, waiting, grpc.Trailer(&trailer))
	found["late"] = outcome(err)
	found["trailer"] = len(trailer.Get("cronoq-task-id"))

	// The deadline of the caller, and a caller that changes its mind.
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = tasks.Wait(short, &pb.WaitRequest{Task: ref(first.Id)})
	found["deadline"] = outcome(err)[0]
	undone, cancel := context.WithCancel(ctx)
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = tasks.Wait(undone, &pb.WaitRequest{Task: ref(first.Id)})
	found["cancelled"] = outcome(err)[0]

	ended, err := tasks.Cancel(ctx, &pb.CancelRequest{Task: ref(first.Id)})
	if err != nil {
		return nil, err
	}
	found["ended"] = ended.Cancelled
	return found, nil
}

// watch: the headers come at once, then each status of a task that is submitted and cancelled.
func watch(ctx context.Context, conn *grpc.ClientConn, _ options) (report, error) {
	tasks := pb.NewTasksClient(conn)
	undone, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := tasks.Watch(undone, &pb.WatchRequest{Keys: []string{"watched"}, AllTransitions: true})
	if err != nil {
		return nil, err
	}
	if _, err := stream.Header(); err != nil {
		return nil, err
	}
	submitted, err := tasks.Submit(ctx, &pb.SubmitRequest{Task: &pb.TaskSpec{Key: "watched"}})
	if err != nil {
		return nil, err
	}
	if _, err := tasks.Cancel(ctx, &pb.CancelRequest{Task: ref(submitted.Id)}); err != nil {
		return nil, err
	}
	var statuses []string
	for range 3 {
		event, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		statuses = append(statuses, event.Status.String())
	}
	cancel()
	_, err = stream.Recv()
	return report{"statuses": statuses, "end": outcome(err)[0]}, nil
}

// work: a worker completes tasks, which are submitted on the same connection, and then leaves.
func work(ctx context.Context, conn *grpc.ClientConn, chosen options) (report, error) {
	tasks := pb.NewTasksClient(conn)
	stream, err := pb.NewWorkersClient(conn).Work(ctx)
	if err != nil {
		return nil, err
	}
	register := &pb.Register{Pool: "worked", Slots: uint32(chosen.slots), ProtocolVersion: 3, WorkerName: "go"}
	if err := stream.Send(&pb.WorkerMessage{Msg: &pb.WorkerMessage_Register{Register: register}}); err != nil {
		return nil, err
	}
	registered, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	worked := make(chan error, 1)
	go func() { worked <- complete(stream) }()

	callers := make(chan error)
	for caller := range chosen.slots {
		go func() { callers <- submit(ctx, tasks, caller, chosen) }()
	}
	for range chosen.slots {
		if err := <-callers; err != nil {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return report{"slots": registered.GetRegistered().GetSlots(), "clean": <-worked == io.EOF}, nil
}

// submit is the share of one caller: it waits for each of its tasks and looks at what came of it.
func submit(ctx context.Context, tasks pb.TasksClient, caller int, chosen options) error {
	payload := make([]byte, chosen.size)
	for number := caller; number < chosen.count; number += chosen.slots {
		request := &pb.SubmitRequest{Task: &pb.TaskSpec{Pool: "worked", Payload: payload}, Wait: true}
		answer, err := tasks.Submit(ctx, request)
		if err != nil {
			return err
		}
		if len(answer.Result.Output) != 2*chosen.size {
			return errorf("an output of %d bytes", len(answer.Result.Output))
		}
	}
	return nil
}

// complete answers each lease with its payload twice, until the stream ends.
func complete(stream grpc.BidiStreamingClient[pb.WorkerMessage, pb.ServerMessage]) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		lease := message.GetLease()
		done := &pb.Complete{Lease: lease.Lease, Output: append(lease.Payload, lease.Payload...)}
		if err := stream.Send(&pb.WorkerMessage{Msg: &pb.WorkerMessage_Complete{Complete: done}}); err != nil {
			return err
		}
	}
}

// load submits tasks k0, k1, … from as many callers as slots. Whoever hears UNAVAILABLE submits the same key again.
func load(ctx context.Context, conn *grpc.ClientConn, chosen options) (report, error) {
	tasks := pb.NewTasksClient(conn)
	ended := make(chan error)
	for caller := range chosen.slots {
		go func() {
			for number := caller; number < chosen.count; {
				request := &pb.SubmitRequest{Task: &pb.TaskSpec{Key: fmt.Sprintf("k%d", number)}}
				_, err := tasks.Submit(ctx, request, grpc.WaitForReady(true))
				switch status.Code(err) {
				case codes.OK:
					number += chosen.slots
				case codes.Unavailable:
				default:
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range chosen.slots {
		if err := <-ended; err != nil {
			return nil, err
		}
	}
	return report{}, nil
}
