#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "otel_bridge_curl.h"

// The next request of a file that FileTransport wrote: its length as a varint, then its bytes.
static bool read_request(std::FILE* file, std::vector<char>& request) {
  size_t size = 0;
  int byte = 0x80;
  for (int shift = 0; (byte & 0x80) != 0 && shift < 35; shift += 7) {
    if ((byte = std::fgetc(file)) == EOF) {
      return false;
    }
    size |= static_cast<size_t>(byte & 0x7f) << shift;
  }
  request.resize(size);
  return std::fread(request.data(), 1, size, file) == size;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "forward EVENTS URL CA_FILE\n");
    return 2;
  }
  std::FILE* file = std::fopen(argv[1], "rb");
  if (file == nullptr) {
    return 2;
  }

  otel_bridge::HttpOptions options;
  options.ca_file = argv[3];
  options.bearer_token = std::getenv("BRIDGE_TOKEN");
  otel_bridge::HttpTransport transport(argv[2], options);

  std::vector<char> request;
  unsigned refused = 0;
  while (read_request(file, request)) {
    uint32_t wait_ms = 250;
    while (!transport.send(request.data(), request.size())) {
      std::fprintf(stderr, "%s\n", transport.message());
      if (!transport.again()) {
        ++refused;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(std::max(wait_ms, transport.wait_ms())));
      wait_ms = std::min<uint32_t>(2 * wait_ms, 30000);
    }
  }
  std::printf("%llu events taken, %llu rejected, %u requests refused\n", static_cast<unsigned long long>(transport.accepted()),
              static_cast<unsigned long long>(transport.rejected()), refused);
  std::fclose(file);
  return refused == 0 ? 0 : 1;
}
