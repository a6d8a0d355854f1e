#!/bin/sh
# ONNX Runtime on the simulated device, as it is and over Drystone, by hand:
#   engines/onnxruntime/measure.sh
# in the project's folder. It fetches the wheels (0.3 GB) into target/onnxruntime, and prints for
# each way the bytes asked for, then what the device says of memory, calls and their time.
set -eu
folder=target/onnxruntime
python=$folder/venv/bin/python
simulated=$(cargo xtask simcuda | tail -1)
export DRYSTONE_LIBRARY="$(cargo xtask capi | tail -1)/lib/libdrystone.so"
if [ ! -e "$folder/encoder.onnx" ]; then
    python3 -m venv "$folder/venv"
    "$python" -m pip install --quiet onnxruntime-gpu==1.31.1 onnx==1.23.2
    "$python" engines/onnxruntime/encoder.py make "$folder/encoder.onnx"
fi
libraries=$(echo "$folder"/venv/lib/python*/site-packages/onnxruntime/capi)
cargo xtask stubs --wheel-libs "$libraries" --out "$folder/stubs" > /dev/null
cc -O1 -shared -fPIC engines/onnxruntime/watch.c -o "$folder/watch.so" -ldl
watch=$PWD/$folder/watch.so
preload=${DRYSTONE_LIBRARY%.so}_preload.so
run() {
    echo "== $1${2:+, preloaded}${3:+, $3}"
    env LD_LIBRARY_PATH="$PWD/$folder/stubs:$simulated" LD_PRELOAD="$2${2:+:}$watch" DRYSTONE_CONF="$3" \
        SIMCUDA_CONF="memory:${MEMORY:-16GiB},oracle:true,check_kernel_us:50,kernel_us:20,stats:$folder/stats.json" \
        "$python" engines/onnxruntime/encoder.py run "$folder/encoder.onnx" 40 "$1"
    grep peak_physical_bytes "$folder/stats.json"
}
for way in own same pool pool-keep; do run $way "" ""; done
run own "$preload" ""
run pool-keep "$preload" ""
run pool-keep "$preload" prefer:memory
for options in "" prefer:memory backend:malloc; do run external "" "$options"; done
