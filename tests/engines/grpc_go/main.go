// A gRPC server of grpc-go that takes any request of any method, as a second implementation for the C++ transport to meet.
//
// The last byte of a request says what becomes of it: 'o' OK, 'u' UNAVAILABLE with RetryInfo of 1.5 s, 'i' INVALID_ARGUMENT,
// 's' an answer that never comes. An argument says after which time it lets go of a connection (GOAWAY). It prints the address
// on which it listens.
package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// accepted is the ExportEventsResponse {accepted: N}, N the size of the request.
func accepted(size int) []byte {
	message := []byte{0x08}
	for ; size >= 0x80; size >>= 7 {
		message = append(message, byte(size)|0x80)
	}
	return append(message, byte(size))
}

// raw carries messages as bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (raw) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func answer(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	what := byte('o')
	if len(request) > 0 {
		what = request[len(request)-1]
	}
	switch what {
	case 'u':
		later, err := status.New(codes.Unavailable, "no room").WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)})
		if err != nil {
			return err
		}
		return later.Err()
	case 'i':
		return status.Error(codes.InvalidArgument, "größer")
	case 's':
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	response := accepted(len(request))
	return stream.SendMsg(&response)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	age := 10 * time.Second
	if len(os.Args) > 1 {
		if age, err = time.ParseDuration(os.Args[1]); err != nil {
			panic(err)
		}
	}
	server := grpc.NewServer(
		grpc.ForceServerCodec(raw{}),
		grpc.UnknownServiceHandler(answer),
		grpc.MaxRecvMsgSize(16<<20),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: age, MaxConnectionAgeGrace: time.Second}),
	)
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); err != nil {
		panic(err)
	}
}
