"""One example per command, shown at the end of its --help and in docs/cli.md. Every one of them parses (a test)."""

EXAMPLES = {
    "train": "pycaffe-lms train -solver solver.prototxt -gpu 0 -lms 1000 -lms_frac 0.4",
    "test": "pycaffe-lms test -model train_val.prototxt -weights net.caffemodel -iterations 100",
    "time": "pycaffe-lms time -model train_val.prototxt -iterations 20 -gpu 0",
    "plan": "pycaffe-lms plan -model train_val.prototxt -shape data=256,3,224,224 -lms auto -lms_budget 16GB -summary",
    "device_query": "pycaffe-lms device_query -gpu all",
    "dataset": "pycaffe-lms dataset mnist -from ~/Downloads/mnist",
    "dataset imagenet": "pycaffe-lms dataset imagenet -from ~/imagenet -out data/ilsvrc12 -resize_shorter 256 "
    "-encode_type jpg",
    "dataset volumes": "pycaffe-lms dataset volumes -list scans.txt -from ~/scans/ -out data/volumes -name train",
    "summarize": "pycaffe-lms summarize models/resnet-50/train_val.prototxt -shape data=32,3,224,224",
    "extract_features": "pycaffe-lms extract_features net.caffemodel net.prototxt fc7,prob fc7_lmdb,prob_lmdb 10 lmdb "
    "GPU 0",
    "classify": "pycaffe-lms classify cat.jpg scores.npy -model_def deploy.prototxt -pretrained_model net.caffemodel "
    "-labels_file synset_words.txt",
    "detect": "pycaffe-lms detect windows.csv scores.csv -model_def deploy.prototxt -pretrained_model net.caffemodel",
    "export_onnx": "pycaffe-lms export_onnx -model deploy.prototxt -weights net.caffemodel -o net.onnx",
    "draw_net": "pycaffe-lms draw_net models/lenet/train_val.prototxt lenet.png -rankdir TB -phase TRAIN",
    "plot_training_log": "pycaffe-lms plot_training_log 6 loss.png first.log second.log",
    "diff": "pycaffe-lms diff models/resnet-18/train_val.prototxt models/resnet-34/train_val.prototxt",
    "parse_log": "pycaffe-lms parse_log run.log .",
    "convert_imageset": "pycaffe-lms convert_imageset -shuffle -resize_height=256 -resize_width=256 pictures/ "
    "train.txt train_lmdb",
    "convert_mnist_data": "pycaffe-lms convert_mnist_data train-images-idx3-ubyte train-labels-idx1-ubyte "
    "mnist_train_lmdb",
    "convert_cifar_data": "pycaffe-lms convert_cifar_data cifar-10-batches-bin data/cifar10 lmdb",
    "convert_mnist_siamese_data": "pycaffe-lms convert_mnist_siamese_data -seed 1 train-images-idx3-ubyte "
    "train-labels-idx1-ubyte pairs_leveldb",
    "compute_image_mean": "pycaffe-lms compute_image_mean -backend=lmdb train_lmdb mean.binaryproto",
    "upgrade_net_proto_text": "pycaffe-lms upgrade_net_proto_text old.prototxt new.prototxt",
    "upgrade_net_proto_binary": "pycaffe-lms upgrade_net_proto_binary old.caffemodel new.caffemodel",
    "upgrade_solver_proto_text": "pycaffe-lms upgrade_solver_proto_text old_solver.prototxt solver.prototxt",
    "weights": "pycaffe-lms weights get bvlc_alexnet",
    "completion": "pycaffe-lms completion bash > ~/.local/share/bash-completion/completions/pycaffe-lms",
}
